"""Fixtures for every tier: real servers, started when the first test asks, and fresh databases.

`ODIN_TEST_POSTGRES`, `ODIN_TEST_RABBITMQ` and `ODIN_TEST_VALKEY` name servers that run already. A
server that is neither named nor startable is a failure of the tests that need it, never a skip.
"""

import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings

from cluster.servers import PostgresServer, RabbitmqServer, ValkeyServer
from odin.runtime.migrate import migrate
from tests.doubt import RESTING, TOLD, dice_of_environment, open_doubtfully, was_told

# Explaining traces every line of a failing test: the failure then ends as a time-out, unseen.
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
# A build tries the same examples each time, so that it tells of its change alone; `make hunt` tries
# other ones, many of them, and what it finds becomes a test of its own.
settings.register_profile(
    "build", max_examples=100, deadline=None, phases=_PHASES, derandomize=True
)
settings.register_profile(
    "hunt",
    max_examples=5_000,
    deadline=None,
    phases=_PHASES,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("ODIN_TEST_PROFILE", "build"))

_KEPT_PREFIX = "ODIN_TEST_"
_DOUBT = dice_of_environment()


def pytest_configure() -> None:
    """Give every run the same beginning: none of odin's settings, and Ctrl-C at work."""
    for name in list(os.environ):
        if name.startswith("ODIN_") and not name.startswith(_KEPT_PREFIX):
            del os.environ[name]
    # A script's background job ignores SIGINT and hands that down to every program a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _DOUBT is not None:
        patch = pytest.MonkeyPatch()
        patch.setattr(asyncpg, "connect", open_doubtfully(_DOUBT, asyncpg.connect))
        patch.setattr(asyncpg, "create_pool", open_doubtfully(_DOUBT, asyncpg.create_pool))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let every reply arrive in tests that are named for it."""
    if _DOUBT is not None:
        _DOUBT.rests = any(item.nodeid.startswith(name) for name in RESTING)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test of the store that was told of a lost reply as what it is, no failure."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if _DOUBT is not None and item.nodeid.startswith(TOLD) and was_told(error):
        _DOUBT.told += 1
        report.outcome = "skipped"
        report.wasxfail = "told of a lost reply"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many replies were lost, and how to lose the same ones again."""
    if _DOUBT is not None:
        terminalreporter.write_line(_DOUBT.report())


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """The data of the servers of this test run, gone after it."""
    with tempfile.TemporaryDirectory(prefix="odin-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
async def postgres_server(servers_folder: Path) -> AsyncIterator[str]:
    """The address of a Postgres whose role may create databases."""
    if given := os.environ.get("ODIN_TEST_POSTGRES"):
        yield given
        return
    async with PostgresServer(servers_folder / "postgres", os.environ) as server:
        yield server.url


@pytest.fixture(scope="session")
async def rabbitmq_url(servers_folder: Path) -> AsyncIterator[str]:
    """The address of a RabbitMQ. Queues of different tests need different names."""
    if given := os.environ.get("ODIN_TEST_RABBITMQ"):
        yield given
        return
    async with RabbitmqServer(servers_folder / "rabbitmq", os.environ) as server:
        yield server.url


@pytest.fixture(scope="session")
async def valkey_url(servers_folder: Path) -> AsyncIterator[str]:
    """The address of a Valkey. Keys of different tests need different prefixes."""
    if given := os.environ.get("ODIN_TEST_VALKEY"):
        yield given
        return
    async with ValkeyServer(servers_folder / "valkey", os.environ) as server:
        yield server.url


@pytest.fixture(scope="session")
async def template_database(postgres_server: str) -> AsyncIterator[str]:
    """The name of a database that carries every migration, to be cloned."""
    name = f"odin_template_{secrets.token_hex(4)}"
    await _execute(postgres_server, f'CREATE DATABASE "{name}"')
    await migrate(database_url(postgres_server, name))
    yield name
    await _execute(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
async def dsn(postgres_server: str, template_database: str) -> AsyncIterator[str]:
    """The address of a fresh database with odin's schema, gone after the test."""
    name = f"odin_{secrets.token_hex(6)}"
    await _execute(postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
    yield database_url(postgres_server, name)
    await _execute(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


def database_url(url: str, database: str) -> str:
    """Return the address of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
