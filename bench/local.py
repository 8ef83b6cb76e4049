"""The cluster that a benchmark starts for itself: servers, engines, workers, each a process.

Servers that ODIN_POSTGRES_DSN, ODIN_AMQP_URL and ODIN_VALKEY_URL name are used as they are; their
CPU cannot be told from their other work and is not measured. Everything else of the environment
that would move our parts is left out; what only tunes them is kept, and told.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odin.errors import UnavailableError
from odin.runtime.migrate import migrate
from odin.runtime.services import command_of, environment_of, module_of

from .cpu import children_of
from .database import database_of
from .engines import Engines, session
from .options import Options
from .processes import Child, child

LOOPBACK: Final = "127.0.0.1"
PREFIX: Final = "bench-"
START_SECONDS: Final = 60.0
INSTALL_SECONDS: Final = 600.0
READY_SECONDS: Final = 30.0
BALANCE_SECONDS: Final = 20.0
SERVERS_GRACE_SECONDS: Final = 20.0
SERVICE_GRACE_SECONDS: Final = 8.0
POLL_SECONDS: Final = 0.1
_EXPORT: Final = re.compile(r"export ODIN_TEST_(\w+)='(.*)'")
_EXTERNAL: Final = ("ODIN_POSTGRES_DSN", "ODIN_AMQP_URL", "ODIN_VALKEY_URL")
TUNING: Final = (
    "ODIN_LANES",
    "ODIN_POSTGRES_POOL_SIZE",
    "ODIN_SHARD_COUNT",
    "ODIN_WORKER_SLOTS",
)
_PROGRAMS: Final = {
    "postgres": ("/postgres ",),
    "rabbitmq": ("rabbitmq", "beam.smp", "epmd"),
    "valkey": ("valkey-server",),
}
_NOBODY: Final = "amqp://nobody@127.0.0.1:1/"  # never dialled: keeps a broker from being started


@dataclass(frozen=True, slots=True)
class Cluster:
    """What can be measured.

    Attributes:
        addresses: Engines.
        task_queue: Which workers take part.
        api_key: The token, if there is one.
        dsn: Its Postgres, if it may be read. A secret: never show it.
        amqp_url: Its RabbitMQ, if there is one that may be asked. A secret.
        valkey_url: The same for Valkey.
        roots: Kind of process → the process ids at the top of its trees; empty if unknown.
        unmeasured: Kinds whose CPU cannot be told.
        check: Raises if a process has ended.
        tuning: Settings of the environment that were handed on.
    """

    addresses: list[str]
    task_queue: str
    api_key: str | None = None
    dsn: str = field(default="", repr=False)
    amqp_url: str = field(default="", repr=False)
    valkey_url: str = field(default="", repr=False)
    roots: dict[str, list[int]] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()
    check: Callable[[], None] = lambda: None
    tuning: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def local_cluster(
    options: Options, environ: Mapping[str, str], root: Path, tell: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """Start a cluster for the length of the block; nothing of it is left afterwards.

    Args:
        options: How many of what.
        environ: The environment of whoever asks.
        root: Below it the cluster gets a folder of its own.
        tell: Told of progress, a line at a time.

    Raises:
        UnavailableError: A part did not start.
        FailedPreconditionError: Engines run on the named database already.
    """
    with own_folder(root) as folder:
        async with AsyncExitStack() as stack:
            yield await _start(stack, options, environ, folder, tell)


@contextmanager
def own_folder(root: Path) -> Iterator[Path]:
    """Make a folder for the length of the block, and remove what killed benchmarks have left."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in root.glob(f"{PREFIX}*"):
        with _locked(left) as is_free:
            if is_free:
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root)).resolve()
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder, which the kernel undoes if we are killed; yields whether it was free."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


async def _start(
    stack: AsyncExitStack,
    options: Options,
    environ: Mapping[str, str],
    folder: Path,
    tell: Callable[[str], None],
) -> Cluster:
    tell("starting the servers")
    servers, urls = await _servers(stack, options, environ, folder)
    await migrate(urls["POSTGRES"])
    async with database_of(urls["POSTGRES"]) as database:
        await database.refuse_company()
    tuning = {name: environ[name] for name in TUNING if environ.get(name)}
    base = environment_of({**_plain(environ), **tuning})
    base |= {
        "ODIN_POSTGRES_DSN": urls["POSTGRES"],
        "ODIN_VALKEY_URL": urls["VALKEY"],
        "ODIN_BROKER": options.broker,
        "ODIN_AMQP_URL": urls.get("RABBITMQ", ""),
    }
    tell(f"starting {options.engines} engine(s) and {options.workers} worker(s)")
    engines, addresses = await _engines(stack, options, base, folder)
    task_queue = f"bench-{secrets.token_hex(4)}"
    workers = await _workers(stack, options, base, folder, (addresses, task_queue))
    roots = {
        **_kinds(servers),
        "engine": [one.pid for one in engines],
        "worker": [one.pid for one in workers],
    }
    everyone = [servers, *engines, *workers]

    def check() -> None:
        for one in everyone:
            one.check()

    cluster = Cluster(
        addresses=addresses,
        task_queue=task_queue,
        dsn=urls["POSTGRES"],
        amqp_url=urls.get("RABBITMQ", ""),
        valkey_url=urls["VALKEY"],
        roots=roots,
        unmeasured=tuple(kind for kind in _expected(options) if kind not in roots),
        check=check,
        tuning=tuning,
    )
    await _until_ready(cluster, options, tell)
    return cluster


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("ODIN_")}


def _expected(options: Options) -> list[str]:
    return ["postgres", "valkey", *(["rabbitmq"] if options.broker == "rabbitmq" else [])]


async def _servers(
    stack: AsyncExitStack, options: Options, environ: Mapping[str, str], folder: Path
) -> tuple[Child, dict[str, str]]:
    """Start the servers; return their process and their addresses."""
    external = {name: environ[name] for name in _EXTERNAL if environ.get(name)}
    if options.broker != "rabbitmq":
        external["ODIN_AMQP_URL"] = _NOBODY
    command = [sys.executable, "-P", "-m", f"{module_of('cluster')}.servers"]
    servers = await stack.enter_async_context(
        child(
            "servers",
            [*command, "--folder", str(folder / "servers")],
            environment_of({**_plain(environ), **external}),
            folder,
            SERVERS_GRACE_SECONDS,
            talks=True,
        )
    )
    urls: dict[str, str] = {}
    for _ in range(len(_EXTERNAL)):
        line = (await servers.line(INSTALL_SECONDS)).decode()
        found = _EXPORT.fullmatch(line.strip())
        if found is None:
            raise servers.failure("said something else than an address")
        urls[found[1]] = found[2]
    if options.broker != "rabbitmq":
        del urls["RABBITMQ"]
    return servers, urls


async def _engines(
    stack: AsyncExitStack, options: Options, base: Mapping[str, str], folder: Path
) -> tuple[list[Child], list[str]]:
    ports = _free_ports(options.engines)
    engines = []
    for number, port in enumerate(ports, 1):
        name = f"bench-engine-{number}"
        environ = {**base, "ODIN_NODE_ID": name, "ODIN_HTTP_PORT": str(port)}
        started = child(name, command_of("engine"), environ, folder, SERVICE_GRACE_SECONDS)
        engines.append(await stack.enter_async_context(started))
    return engines, [f"http://{LOOPBACK}:{port}" for port in ports]


async def _workers(
    stack: AsyncExitStack,
    options: Options,
    base: Mapping[str, str],
    folder: Path,
    serves: tuple[list[str], str],
) -> list[Child]:
    addresses, task_queue = serves
    nowhere = f"http://{LOOPBACK}:1"  # the demo's services: its workflows are not run here
    environ = {
        **base,
        "ODIN_ENGINES": ",".join(addresses),
        "ODIN_TASK_QUEUE": task_queue,
        "ODIN_PAYMENTS_URL": nowhere,
        "ODIN_SHIPPING_URL": nowhere,
        "ODIN_DRIVERS_URL": nowhere,
    }
    workers = []
    for number in range(1, options.workers + 1):
        name = f"bench-worker-{number}"
        own = {**environ, "ODIN_WORKER_ID": name}
        started = child(name, command_of("worker"), own, folder, SERVICE_GRACE_SECONDS)
        workers.append(await stack.enter_async_context(started))
    return workers


async def _until_ready(cluster: Cluster, options: Options, tell: Callable[[str], None]) -> None:
    async with session() as opened:
        engines = Engines(opened, cluster.addresses, None)
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not await engines.are_ready():
                    cluster.check()
                    await asyncio.sleep(POLL_SECONDS)
                while await engines.worker_count() < options.workers:
                    cluster.check()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise UnavailableError("engines and workers were not ready in time") from None
        shards = await engines.until_balanced(BALANCE_SECONDS)
    tell("shards: " + ", ".join(f"{node} {count}" for node, count in sorted(shards.items())))


def _kinds(servers: Child) -> dict[str, list[int]]:
    """Return the servers' own processes by kind."""
    kinds: dict[str, list[int]] = {}
    for pid, command in children_of(servers.pid).items():
        for kind, marks in _PROGRAMS.items():
            if any(mark in command for mark in marks):
                kinds.setdefault(kind, []).append(pid)
                break
    return kinds


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at this moment, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
