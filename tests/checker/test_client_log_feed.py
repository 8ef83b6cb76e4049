"""The copy of a client log in Postgres: whole, in order, once, whatever Postgres does meanwhile."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import asyncpg
import pytest

from cluster.client_log import ClientLog, read, starts
from cluster.client_log_feed import Feed, feeding
from odin.runtime.clock import SystemClock
from tests.checker.real_run import run_on
from tests.conftest import database_url

CLOCK = SystemClock()


def tell(log: ClientLog, number: int) -> None:
    fields = {"call": "start", "workflow_id": f"w-{number}", "request_id": f"r-{number}"}
    log.write("invoke", workflow_type="Order", amount_cents=5, **fields)
    log.write("fail", reason="RESOURCE_EXHAUSTED", retry_after_ms=7, **fields)


async def lines(dsn: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch("SELECT * FROM client_log ORDER BY client, line"))
    finally:
        await connection.close()


async def test_what_stood_in_the_file_before_is_left_and_what_comes_is_copied_once(
    dsn: str, tmp_path: Path
) -> None:
    with ClientLog(tmp_path / "log", CLOCK) as log:
        tell(log, 0)
    with ClientLog(tmp_path / "log", CLOCK) as log:
        async with feeding(dsn, log, "c", CLOCK):
            tell(log, 1)
            tell(log, 2)
        again = Feed(dsn, log.path, "c", CLOCK, log.begins_at)  # as after an unknown outcome
        stop = asyncio.Event()
        stop.set()
        await again(stop)

    copied = await lines(dsn)
    assert [(row["line"], row["operation"], row["workflow_id"]) for row in copied] == [
        (1, "invoke", "w-1"),
        (2, "fail", "w-1"),
        (3, "invoke", "w-2"),
        (4, "fail", "w-2"),
    ]
    assert copied[1]["details"] == '{"reason":"RESOURCE_EXHAUSTED","retry_after_ms":7}'
    assert {row["call_id"] for row in copied} == {"r-1", "r-2"}
    assert len(read(tmp_path / "log")) == 6


async def test_while_postgres_is_away_the_file_goes_on_and_the_copy_follows_later(
    postgres_server: str,
    template_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("cluster.client_log_feed.AWAY_SECONDS", 0.05)
    name = f"odin_{secrets.token_hex(6)}"
    dsn = database_url(postgres_server, name)
    try:
        with ClientLog(tmp_path / "log", CLOCK) as log:
            async with feeding(dsn, log, "c", CLOCK):
                for number in range(2_000):  # more than one chunk of the file
                    tell(log, number)
                async with asyncio.timeout(10):
                    while "the client log is kept in the file" not in caplog.messages:
                        await asyncio.sleep(0.01)
                await run_on(
                    postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"'
                )
        copied = await lines(dsn)
        assert [row["line"] for row in copied] == list(range(1, 4_001))
        assert copied[-1]["workflow_id"] == "w-1999"
    finally:
        await run_on(postgres_server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def test_a_postgres_that_stays_away_does_not_keep_the_load_from_ending(
    tmp_path: Path,
) -> None:
    with ClientLog(tmp_path / "log", CLOCK) as log:
        async with asyncio.timeout(5):
            async with feeding("postgresql://x@127.0.0.1:1/x", log, "c", CLOCK):
                tell(log, 1)
    assert len(read(tmp_path / "log")) == 2


async def test_the_log_cannot_be_rewritten_and_old_lines_go(dsn: str, tmp_path: Path) -> None:
    with ClientLog(tmp_path / "log", CLOCK) as log:
        async with feeding(dsn, log, "old", CLOCK):
            tell(log, 1)
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await run_on(dsn, "UPDATE client_log SET operation = 'ok'")
        await run_on(
            dsn,
            "ALTER TABLE client_log DISABLE TRIGGER client_log_append_only",
            "UPDATE client_log SET recorded_at = recorded_at - interval '25 hours' WHERE line = 1",
        )
        tell(log, 2)
        feed = Feed(dsn, log.path, "new", CLOCK, log.begins_at)
        stop = asyncio.Event()
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(feed(stop))
            while any(row["client"] == "old" and row["line"] == 1 for row in await lines(dsn)):
                await asyncio.sleep(0.02)
            stop.set()
    kept = [(row["client"], row["line"]) for row in await lines(dsn)]
    assert kept == [("new", 1), ("new", 2), ("new", 3), ("new", 4), ("old", 2)]


def test_what_a_client_saw_is_no_start(tmp_path: Path) -> None:
    with ClientLog(tmp_path / "log", CLOCK) as log:
        tell(log, 1)
        log.write("ok", call="describe", workflow_id="w-1", request_id="r-2", status="running")
    assert [one.workflow_id for one in starts(read(tmp_path / "log"))] == ["w-1"]
