"""Own servers: what survives which end, who may reach them, and that none outlives its owner."""

import asyncio
import os
import pwd
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypeAlias

import aio_pika
import asyncpg
import psutil
import pytest
import valkey.asyncio as client
from aio_pika import DeliveryMode, Message
from valkey.exceptions import AuthenticationError

from cluster.servers import PostgresServer, RabbitmqServer, ServerError, ValkeyServer
from cluster.servers import postgres as postgres_module

OwnServer: TypeAlias = PostgresServer | RabbitmqServer | ValkeyServer


@pytest.fixture(scope="module")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PostgresServer]:
    async with PostgresServer(tmp_path_factory.mktemp("postgres"), os.environ) as server:
        yield server


@pytest.fixture(scope="module")
async def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RabbitmqServer]:
    async with RabbitmqServer(tmp_path_factory.mktemp("rabbitmq"), os.environ) as server:
        yield server


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    async with ValkeyServer(tmp_path, os.environ) as server:
        yield server


async def _query(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_what_postgres_committed_is_there_after_stop_and_crash(
    postgres: PostgresServer, end: str
) -> None:
    await _query(postgres.url, f"CREATE TABLE kept_{end} AS SELECT 42 AS answer")
    first = postgres.pid

    if end == "crash":
        await postgres.kill()
        await postgres.start()
    else:
        await postgres.restart()

    assert postgres.pid != first
    assert await _query(postgres.url, f"SELECT answer FROM kept_{end}") == 42


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("track_commit_timestamp", "on"),
        ("client_connection_check_interval", "2s"),
        ("max_connections", "200"),
    ],
)
async def test_postgres_keeps_the_promises_that_odin_stands_on(
    postgres: PostgresServer, setting: str, value: str
) -> None:
    assert await _query(postgres.url, f"SHOW {setting}") == value


async def test_postgres_refuses_a_wrong_password(postgres: PostgresServer) -> None:
    wrong = f"postgresql://odin:wrong@127.0.0.1:{postgres.port}/odin"
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(wrong, timeout=5)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


async def test_postgres_runs_as_another_user_where_namespaces_are_off(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    monkeypatch.setattr(postgres_module, "NAMESPACE", ("false",))
    server = PostgresServer(open_folder / "postgres", os.environ)
    user = pwd.getpwnam("nobody")
    if os.geteuid() == 0 and postgres_module.closed_to(user, Path(sys.prefix)):
        # Where the programs lie below a closed folder, that is said, with what to do.
        with pytest.raises(ServerError, match="is closed to others"):
            await server.start()
        return
    async with server:
        assert await _query(server.url, "SELECT 1") == 1
        assert psutil.Process(server.pid).uids().real != 0


@pytest.fixture(params=["postgres", "rabbitmq", "valkey"])
def server(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    rabbitmq: RabbitmqServer,
    valkey: ValkeyServer,
) -> OwnServer:
    own: dict[str, OwnServer] = {"postgres": postgres, "rabbitmq": rabbitmq, "valkey": valkey}
    return own[request.param]


async def test_a_server_listens_on_the_loopback_interface_alone(server: OwnServer) -> None:
    listening = [
        connection.laddr.ip
        for process in psutil.process_iter()
        if process.pid == server.pid or _serves(process, server)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening != []
    assert set(listening) <= {"127.0.0.1", "::1"}


def _serves(process: psutil.Process, server: OwnServer) -> bool:
    try:
        return bool(process.environ().get("HOME") == str(server.folder))
    except psutil.Error:
        return False


def test_nobody_else_can_read_a_servers_folder_or_password(server: OwnServer) -> None:
    folder = server.folder
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600


async def test_a_confirmed_message_is_there_after_the_broker_was_killed(
    rabbitmq: RabbitmqServer,
) -> None:
    async with await aio_pika.connect(rabbitmq.url) as connection:
        channel = await connection.channel(on_return_raises=True)
        await channel.declare_queue("kept", durable=True, arguments={"x-queue-type": "quorum"})
        message = Message(b"task", delivery_mode=DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key="kept", mandatory=True)

    await _queue_is_registered(rabbitmq, "kept")
    await rabbitmq.kill()
    await rabbitmq.start()

    async with await aio_pika.connect(rabbitmq.url) as connection:
        queue = await (await connection.channel()).get_queue("kept")
        taken = await queue.get(timeout=20)
        assert taken is not None
        assert taken.body == b"task"
        await taken.ack()


async def _queue_is_registered(server: RabbitmqServer, queue: str) -> None:
    """Wait until the files that lead from the queue's name to its log are written.

    RabbitMQ 3.10 writes them up to half a second after the declaration, so that a queue which is
    younger than that is lost in a crash, with every message that was confirmed in it.
    """
    async with asyncio.timeout(10):
        for name in ("names.dets", "meta.dets"):
            (file,) = server.folder.glob(f"mnesia/*/quorum/*/{name}")
            while f"_{queue}".encode() not in file.read_bytes():
                await asyncio.sleep(0.05)


async def test_the_broker_obeys_its_own_control_and_has_no_guest(rabbitmq: RabbitmqServer) -> None:
    users = await rabbitmq.control("list_users", "--no-table-headers")
    assert users.split("\t")[0].startswith("odin-")
    assert "guest" not in users


async def test_a_stopped_broker_leaves_no_process(tmp_path: Path) -> None:
    async with RabbitmqServer(tmp_path, os.environ) as server:
        assert [p for p in psutil.process_iter() if _serves(p, server)] != []
    assert [p.info for p in psutil.process_iter(["cmdline"]) if _serves(p, server)] == []


async def test_valkey_asks_for_the_password_and_forgets_everything_at_the_end(
    valkey: ValkeyServer,
) -> None:
    async with client.Valkey.from_url(valkey.url) as connection:
        await connection.set("odin:test", "1")
    async with client.Valkey(host="127.0.0.1", port=valkey.port) as nobody:
        with pytest.raises(AuthenticationError):
            await nobody.get("odin:test")

    await valkey.restart()

    async with client.Valkey.from_url(valkey.url) as connection:
        assert await connection.get("odin:test") is None


async def test_stopping_twice_and_before_the_start_is_no_error(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path, os.environ)
    await server.stop()
    async with server:
        await server.start()
    await server.stop()
    assert server.pid is None


async def test_one_folder_has_one_owner(valkey: ValkeyServer) -> None:
    second = ValkeyServer(valkey.folder, os.environ)
    with pytest.raises(ServerError, match="another process runs a server"):
        await second.start()
    assert valkey.pid is not None


@pytest.fixture
def owner_program(tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "cluster.servers", "--folder", str(tmp_path / "owned")]


async def test_servers_end_with_an_owner_that_was_killed(
    owner_program: list[str], tmp_path: Path
) -> None:
    environ = {**os.environ, "ODIN_AMQP_URL": "amqp://127.0.0.1:1/"}
    owner = await asyncio.create_subprocess_exec(
        *owner_program, env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    printed = [await asyncio.wait_for(owner.stdout.readline(), 30) for _ in range(3)]
    assert printed[1] == b"export ODIN_TEST_RABBITMQ='amqp://127.0.0.1:1/'\n"
    files = [tmp_path / "owned" / name / "pid" for name in ("postgres", "valkey")]
    children = [psutil.Process(int(file.read_text())) for file in files]

    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=20)
    assert alive == []
