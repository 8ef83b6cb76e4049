"""A RabbitMQ node of our own, beside whatever broker the machine runs.

Everything that two nodes of one machine could share has a value of its own: the node's name, the
ports of AMQP and of Erlang's distribution, the port mapper (epmd), the cookie, the folders and the
configuration. All of it listens on the loopback interface alone, and no plugin is on.
"""

import asyncio
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .common import (
    LOOPBACK,
    ExternalServer,
    Process,
    Server,
    ServerError,
    accepts,
    base_environ,
    free_port,
    private_folder,
    run,
    secret_file,
    write_private,
)
from .leftovers import FolderLock, end_orphan, remember

URL_VARIABLE = "ODIN_AMQP_URL"
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
POLICY = Path("/usr/sbin/policy-rc.d")

_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_CONNECTION_START_FRAME = b"\x01\x00\x00"
_INSTALL_SECONDS = 600
_EPMD_SECONDS = 10
_START_SECONDS = 90
_STOP_SECONDS = 15
_CONTROL_SECONDS = 60
_LOOPBACK_DISTRIBUTION = "-kernel inet_dist_use_interface {127,0,0,1}"
# Two schedulers, no busy waiting: an idle broker must leave the two cores of a laptop to the rest.
_ERLANG = (
    f"{_LOOPBACK_DISTRIBUTION} +S 2:2 +SDcpu 2:2 +SDio 2 +A 16"
    " +sbwt none +sbwtdcpu none +sbwtdio none"
)


class RabbitmqServer(Server):
    """One RabbitMQ node and its own port mapper."""

    name = "rabbitmq"

    def __init__(self, folder: Path, environ: Mapping[str, str], port: int | None = None) -> None:
        self.folder = private_folder(folder)
        self.port = port or free_port()
        self._distribution_port = free_port()
        self._epmd_port = free_port()
        self._outer = environ
        self._password = secret_file(self.folder / "password")
        self._user = f"odin-{secret_file(self.folder / 'user', 4)}"
        self._node = f"odin-{secret_file(self.folder / 'node', 4)}@localhost"
        self._epmd: Process | None = None
        self._lock = FolderLock(self.folder)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address with user and password."""
        return f"amqp://{self._user}:{self._password}@{LOOPBACK}:{self.port}/"

    @property
    def pid(self) -> int | None:
        """The Erlang machine's process id, None while it does not run."""
        return self._process.pid if self._process and self._process.running else None

    async def start(self) -> None:
        """Start the port mapper and the node, and wait until it greets AMQP clients.

        Raises:
            ServerError: there is no RabbitMQ, or it did not start.
        """
        if self.pid is not None:
            return
        self._lock.take()
        await end_orphan(self.folder, signal.SIGTERM)
        await ensure_installed(self._outer)
        self._write_files()
        environ = self._node_environ()
        if self._epmd is None or not self._epmd.running:
            self._epmd = await Process.spawn(
                ["epmd", "-port", str(self._epmd_port), "-address", LOOPBACK],
                log=self.folder / "epmd.log",
                environ=environ,
                death_signal=signal.SIGTERM,
            )
            await self._epmd.until_ready(self._mapper_answers, _EPMD_SECONDS, "epmd")
        self._process = await Process.spawn(
            [str(PROGRAMS / "rabbitmq-server")],
            log=self.folder / "start.log",
            environ=environ,
            death_signal=signal.SIGTERM,
        )
        remember(self.folder, self._process.pid)
        await self._process.until_ready(self._greets, _START_SECONDS, "RabbitMQ")

    async def stop(self) -> None:
        """Stop the node in order, then its port mapper."""
        await self._end(signal.SIGTERM)
        self._lock.give_back()

    async def kill(self) -> None:
        """End the node and its port mapper at once."""
        await self._end(signal.SIGKILL)

    async def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against this node and return what it prints.

        Raises:
            ServerError: the command failed.
        """
        command = [str(PROGRAMS / "rabbitmqctl"), "--quiet", "--node", self._node, *arguments]
        return await run(command, self._node_environ(), _CONTROL_SECONDS)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            await self._process.end(number, _STOP_SECONDS)
        if self._epmd is not None:
            await self._epmd.end(signal.SIGKILL, _STOP_SECONDS)

    def _write_files(self) -> None:
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            write_private(cookie, secrets.token_hex(24), mode=0o400)
        write_private(self.folder / "rabbitmq.conf", self._configuration())
        write_private(self.folder / "advanced.config", "[].\n")
        write_private(self.folder / "enabled_plugins", "[].\n")
        write_private(self.folder / "rabbitmq-env.conf", "")

    def _configuration(self) -> str:
        return "\n".join(
            [
                f"listeners.tcp.1 = {LOOPBACK}:{self.port}",
                f"default_user = {self._user}",
                f"default_pass = {self._password}",
                "vm_memory_high_watermark.absolute = 1GB",
                "disk_free_limit.absolute = 50MB",
                "log.file.level = warning",
                "",
            ]
        )

    def _node_environ(self) -> dict[str, str]:
        folder = self.folder
        return {
            **base_environ(self._outer, folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
            "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK_DISTRIBUTION,
            # The start script then becomes the Erlang machine instead of waiting for it.
            "detached": "true",
        }

    async def _mapper_answers(self) -> bool:
        return await accepts(self._epmd_port)

    async def _greets(self) -> bool:
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
                try:
                    writer.write(_PROTOCOL_HEADER)
                    greeting = await reader.read(len(_CONNECTION_START_FRAME))
                finally:
                    writer.close()
        except OSError:
            return False
        return greeting == _CONNECTION_START_FRAME


def rabbitmq_server(folder: Path, environ: Mapping[str, str]) -> Server:
    """Return the broker that the environment names, else a node of our own below `folder`."""
    given = environ.get(URL_VARIABLE)
    return ExternalServer("rabbitmq", given) if given else RabbitmqServer(folder, environ)


async def ensure_installed(environ: Mapping[str, str]) -> None:
    """Make sure that RabbitMQ's programs are there: as root, Debian's package is installed.

    Raises:
        ServerError: they are not there and could not be installed.
    """
    if (PROGRAMS / "rabbitmq-server").exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerError(
            "RabbitMQ is not installed",
            f"Run: sudo apt-get install rabbitmq-server, or set {URL_VARIABLE}.",
        )
    settings = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    with nothing_starts(POLICY):
        for command in install_commands(systemd=_has_systemd()):
            await run(command, settings, _INSTALL_SECONDS)
    if not (PROGRAMS / "rabbitmq-server").exists():
        raise ServerError("the package rabbitmq-server brought no program", f"Set {URL_VARIABLE}.")


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def install_commands(*, systemd: bool) -> Sequence[Sequence[str]]:
    """Return the commands that install Debian's package and leave its own broker off.

    Args:
        systemd: whether systemd runs this machine: it would start the broker at the next boot.
    """
    commands = [
        ["apt-get", "update", "--quiet"],
        ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "rabbitmq-server"],
    ]
    if systemd:
        commands.append(["systemctl", "disable", "--quiet", "rabbitmq-server.service"])
    return commands


@contextmanager
def nothing_starts(policy: Path) -> Iterator[None]:
    """Forbid that installing a package starts a service, as long as the block runs.

    Debian's packages ask a program at `policy` whether they may start what they bring; 101 is no.
    A policy that the machine already has is left as it is.
    """
    if policy.exists():
        yield
        return
    write_private(policy, "#!/bin/sh\nexit 101\n", mode=0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)
