"""The end of the demo: waits until all that was accepted is closed, and judges it from Postgres.

    python -m cluster.verify            (ODIN_POSTGRES_DSN, ODIN_CLIENT_LOG, ODIN_VERIFY_SECONDS)

Ends with 0 if every accepted order finished, in order and charged once; with 1 otherwise, and says
which did not. What is read, and how it is judged, shares no code with the engine.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec
from pydantic import Field

from odin.runtime.clock import SystemClock
from odin.runtime.log import setup_logging
from odin.runtime.postgres import Session, connect
from odin.runtime.settings import PostgresSettings, load
from odin.runtime.sql import load_queries

from .client_log import Started, read, starts
from .verdicts import Effect, Run, Summary, judge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Connection

SQL: Final = load_queries(__package__)
SESSION: Final = Session(statement_timeout=60.0, command_timeout=65.0, read_only=True)
POLL_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 300.0

log = logging.getLogger(__name__)


class VerifySettings(PostgresSettings):
    """Settings of `python -m cluster.verify`, beside ODIN_POSTGRES_DSN.

    Attributes:
        client_log: ODIN_CLIENT_LOG, what the load generator wrote.
        verify_seconds: ODIN_VERIFY_SECONDS, how long orders have to close.
    """

    client_log: Path = Path(".odin/client-log.jsonl")
    verify_seconds: float = Field(default=WAIT_SECONDS, ge=0)


async def verify(
    dsn: str,
    client_log: Path,
    *,
    ids: Collection[str] | None = None,
    wait_seconds: float = WAIT_SECONDS,
    clock: Clock | None = None,
) -> Summary:
    """Return whether everything that was accepted finished as it must.

    Args:
        dsn: The cluster's Postgres, which also holds the mocks' books.
        client_log: The file that the load generator wrote; it must have ended.
        ids: Judge only these workflow ids; None: all of the log.
        wait_seconds: How long orders, and cancelled subscriptions, have to close.
        clock: Paces the waiting.

    Raises:
        OSError, asyncpg.PostgresError: the log or Postgres cannot be read.
    """
    found = [one for one in starts(read(client_log)) if ids is None or one.workflow_id in ids]
    connection = await connect(dsn, application_name="odin-verify", session=SESSION)
    try:
        await _wait_until_closed(connection, found, wait_seconds, clock or SystemClock())
        return await _judged(connection, found)
    finally:
        await connection.close(timeout=5)


async def _wait_until_closed(
    connection: Connection, started: Sequence[Started], seconds: float, clock: Clock
) -> None:
    """Return once nothing is open that should close, or after `seconds`."""
    ids = [
        one.workflow_id
        for one in started
        if one.outcome != "fail" and (one.workflow_type != "subscription" or one.cancel == "ok")
    ]
    until = clock.boottime() + seconds
    while open_count := await connection.fetchval(SQL["count_open"], ids):
        if clock.boottime() >= until:
            log.warning("not everything closed in time", extra={"open_count": open_count})
            return
        await clock.sleep(POLL_SECONDS)


async def _judged(connection: Connection, started: Sequence[Started]) -> Summary:
    ids = [one.workflow_id for one in started]
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        runs = [_run(row) for row in await connection.fetch(SQL["read_runs"], ids)]
        effects = [
            Effect(
                row["seq"], row["effect"], row["order_id"], row["workflow_id"], row["amount_cents"]
            )
            for row in await connection.fetch(SQL["read_effects"], ids)
        ]
        lost = [str(row["sku"]) for row in await connection.fetch(SQL["read_stock_lost"])]
    return judge(started, runs, effects, lost)


def _run(row: asyncpg.Record) -> Run:
    return Run(
        workflow_id=row["workflow_id"],
        run_id=row["run_id"],
        status=row["status"],
        next_event_id=row["next_event_id"],
        event_count=row["event_count"],
        first_event_id=row["first_event_id"] or 0,
        last_event_id=row["last_event_id"] or 0,
        closing_type=row["closing_type"] or "",
        outcome=outcome_of(row["closing_attributes"]),
    )


def outcome_of(attributes: bytes | None) -> str:
    """Return the `status` in the result of a closing event; empty if there is none.

    The attributes are msgpack, a result in them is a pair (encoding, bytes).
    """
    if not attributes:
        return ""
    try:
        event: Any = msgspec.msgpack.decode(attributes)
        result: Any = msgspec.json.decode(event["result"][1])
        return str(result["status"])
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, UnicodeDecodeError):
        return ""


async def main() -> int:
    """Verify as a process; return its exit code.

    Raises:
        ConfigurationError: a setting is missing or wrong.
    """
    settings = load(VerifySettings)
    summary = await verify(settings.dsn, settings.client_log, wait_seconds=settings.verify_seconds)
    log.info("counted", extra=dict(summary.counts))
    for problem, who in summary.problems.items():
        log.error(problem, extra={"count": summary.problem_counts[problem], "who": who})
    log.info("verified" if summary.ok else "refuted")
    return 0 if summary.ok else 1


if __name__ == "__main__":
    setup_logging("verify")
    sys.exit(asyncio.run(main()))
