from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from odin.errors import ConfigurationError
from odin.runtime.postgres import (
    READER,
    Connection,
    Pool,
    Session,
    WriteOutcome,
    check_max_connections,
    classify,
    close_pool,
    connect,
    create_pool,
)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    made = await create_pool(
        dsn, name="test", application_name="odin-test/abc", min_size=1, max_size=3
    )
    yield made
    await close_pool(made)


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[Connection]:
    made = await connect(dsn, application_name="odin-test/other")
    yield made
    made.terminate()


async def test_every_connection_is_bounded_and_named(pool: Pool, other: Connection) -> None:
    async with pool.acquire() as connection:
        rows = await connection.fetch("SELECT name, setting FROM pg_settings")
        pooled = {row["name"]: row["setting"] for row in rows}
    rows = await other.fetch("SELECT name, setting FROM pg_settings")
    alone = {row["name"]: row["setting"] for row in rows}
    for settings in (pooled, alone):
        assert settings["idle_in_transaction_session_timeout"] == "3000"
        assert settings["lock_timeout"] == "1000"
        assert settings["statement_timeout"] == "3000"
        assert settings["tcp_user_timeout"] == "6000"
        assert settings["tcp_keepalives_idle"] == "5"
        assert settings["client_connection_check_interval"] == "2000"
        assert settings["jit"] == "off"
        assert settings["TimeZone"] == "UTC"
    assert pooled["application_name"] == "odin-test/abc"
    assert alone["application_name"] == "odin-test/other"


async def test_a_reader_cannot_write(dsn: str) -> None:
    reader = await connect(dsn, application_name="odin-test", session=READER)
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await reader.execute("CREATE TABLE t ()")
    await reader.close()


async def test_a_name_that_would_be_cut_is_refused(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="63 bytes"):
        await connect(dsn, application_name="n" * 64)


async def test_a_released_connection_carries_no_transaction_to_the_next(pool: Pool) -> None:
    for _ in range(5):
        async with pool.acquire() as connection:
            await connection.execute("BEGIN")
        async with pool.acquire() as connection:
            assert not connection.is_in_transaction()


async def test_releasing_a_connection_costs_no_round_trip(pool: Pool, other: Connection) -> None:
    async with pool.acquire() as connection:
        pid = connection.get_server_pid()
        await connection.execute("SELECT 42")
    last = await other.fetchval("SELECT query FROM pg_stat_activity WHERE pid = $1", pid)
    assert last == "SELECT 42"


@pytest.mark.parametrize(
    "bounds",
    [
        {"lock_timeout": 0.0},
        {"lock_timeout": 4.0},
        {"statement_timeout": 5.0, "command_timeout": 5.0},
    ],
)
def test_a_session_whose_inner_bound_could_never_fire_is_refused(
    bounds: dict[str, float],
) -> None:
    with pytest.raises(ConfigurationError, match="lock_timeout"):
        Session(**bounds)  # type: ignore[arg-type]  # all of them are floats


async def test_an_error_the_server_reported_is_raised(other: Connection) -> None:
    for statement in ("SELECT 1/0", "SELECT nothing", "SELEKT", "DO $$ BEGIN RAISE 'x'; END $$"):
        with pytest.raises(asyncpg.PostgresError) as raised:
            await other.execute(statement)
        assert classify(raised.value) is WriteOutcome.RAISED


async def test_a_statement_the_server_cut_is_raised(dsn: str) -> None:
    hasty = await connect(
        dsn,
        application_name="odin-test",
        session=Session(lock_timeout=0.05, statement_timeout=0.05),
    )
    with pytest.raises(asyncpg.QueryCanceledError) as raised:
        await hasty.execute("SELECT pg_sleep(5)")
    assert classify(raised.value) is WriteOutcome.RAISED
    await hasty.close()


async def test_a_lock_not_had_in_time_is_raised(pool: Pool, other: Connection) -> None:
    await other.execute("CREATE TABLE thing ()")
    await other.execute("BEGIN; LOCK TABLE thing")
    with pytest.raises(asyncpg.LockNotAvailableError) as raised:
        await pool.execute("INSERT INTO thing DEFAULT VALUES")
    assert classify(raised.value) is WriteOutcome.RAISED


async def test_a_backend_that_was_ended_leaves_the_outcome_unknown(
    pool: Pool, other: Connection
) -> None:
    async with pool.acquire() as connection:
        await other.fetchval("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        outcomes = []
        for _ in range(2):  # first the farewell or a torn protocol state, then a dead connection
            with pytest.raises(Exception, match=r".+") as raised:
                await connection.execute("SELECT 1")
            outcomes.append(classify(raised.value))
    assert outcomes == [WriteOutcome.UNKNOWN] * 2


async def test_a_transaction_left_open_is_ended_by_the_server_and_unknown(dsn: str) -> None:
    idle = await connect(
        dsn, application_name="odin-test", session=Session(idle_in_transaction_timeout=0.05)
    )
    ended = asyncio.Event()
    idle.add_termination_listener(lambda _: ended.set())
    await idle.execute("BEGIN")
    async with asyncio.timeout(5):
        await ended.wait()
    with pytest.raises(Exception, match=r".+") as raised:
        await idle.execute("COMMIT")
    assert classify(raised.value) is WriteOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.AdminShutdownError, WriteOutcome.UNKNOWN),
        (asyncpg.CrashShutdownError, WriteOutcome.UNKNOWN),
        (asyncpg.CannotConnectNowError, WriteOutcome.UNKNOWN),
        (asyncpg.StatementCompletionUnknownError, WriteOutcome.UNKNOWN),
        (asyncpg.ConnectionFailureError, WriteOutcome.UNKNOWN),
        (asyncpg.IdleInTransactionSessionTimeoutError, WriteOutcome.UNKNOWN),
        (asyncpg.InternalServerError, WriteOutcome.UNKNOWN),
        (asyncpg.PostgresIOError, WriteOutcome.UNKNOWN),
        (asyncpg.DeadlockDetectedError, WriteOutcome.RAISED),
        (asyncpg.SerializationError, WriteOutcome.RAISED),
        (asyncpg.UniqueViolationError, WriteOutcome.RAISED),
        (asyncpg.QueryCanceledError, WriteOutcome.RAISED),
    ],
)
def test_the_kind_of_an_error_alone_says_whether_the_outcome_is_known(
    error: type[asyncpg.PostgresError], expected: WriteOutcome
) -> None:
    assert classify(error("as the server names it")) is expected


async def test_our_own_timeout_and_cancellation_leave_the_outcome_unknown(
    other: Connection,
) -> None:
    with pytest.raises(TimeoutError) as raised:
        await other.execute("SELECT pg_sleep(5)", timeout=0.01)
    assert classify(raised.value) is WriteOutcome.UNKNOWN
    assert classify(asyncio.CancelledError()) is WriteOutcome.UNKNOWN
    assert classify(ConnectionResetError()) is WriteOutcome.UNKNOWN
    assert classify(asyncpg.ConnectionDoesNotExistError()) is WriteOutcome.UNKNOWN


async def test_a_value_that_never_left_the_client_is_raised(other: Connection) -> None:
    with pytest.raises(asyncpg.DataError) as raised:
        await other.execute("SELECT $1::integer", "text")
    assert classify(raised.value) is WriteOutcome.RAISED


async def test_pools_that_could_not_be_filled_are_refused_at_start(other: Connection) -> None:
    maximum = int(await other.fetchval("SHOW max_connections"))
    await check_max_connections(other, 1)
    with pytest.raises(ConfigurationError, match=str(maximum)) as refused:
        await check_max_connections(other, maximum)  # some are always reserved
    usable = refused.value.details["usable"]
    assert isinstance(usable, int)
    await check_max_connections(other, usable)
    with pytest.raises(ConfigurationError):
        await check_max_connections(other, usable + 1)


async def test_closing_a_pool_does_not_wait_for_who_holds_a_connection(dsn: str) -> None:
    made = await create_pool(dsn, name="test", application_name="t", min_size=1, max_size=1)
    held = await made.acquire()
    ended = asyncio.Event()
    held.add_termination_listener(lambda _: ended.set())
    async with asyncio.timeout(5):
        await close_pool(made, timeout_seconds=0.05)
        await ended.wait()
