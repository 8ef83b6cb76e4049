"""The judge of the fault tests can say no: each kind of wrong, made by hand, is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest

from cluster.client_log import Entry, Operation

from .bed import longest_stall
from .evidence import Books

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
TERM = """
INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
VALUES (3, $1, $2, 'i', 'n')
"""
EVENT = """
INSERT INTO event (shard_id, run_id, event_id, type, recorded_at, range_id, txid, attributes)
VALUES (3, '00000000-0000-7000-8000-000000000001', $1, 'signaled', clock_timestamp(), $2,
    pg_current_xact_id(), '')
"""
CHARGE = """
INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, amount_cents, body_hash)
VALUES ('payments', 'charge', 'o', $1, 5, '')
"""


@pytest.fixture
async def books(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        yield connection
    finally:
        await connection.close()


async def test_events_of_their_ranges_and_single_charges_are_right(
    dsn: str, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    for number, range_id in enumerate((1, 2, 3), 1):
        await books.execute(TERM, range_id, "bumped" if range_id == 2 else "acquired")
        await books.execute(EVENT, number, range_id)
        await books.execute(CHARGE, f"key-{number}")
    assert await Books(dsn).faults(BEGINNING) == []


async def test_an_event_written_after_the_next_range_began_is_found(
    dsn: str, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    await books.execute(TERM, 1, "acquired")
    await books.execute(TERM, 2, "acquired")
    await books.execute(EVENT, 1, 1)
    [wrong] = await Books(dsn).faults(BEGINNING)
    assert wrong.startswith("written outside of its range")


async def test_an_event_of_a_range_that_nobody_had_is_found(
    dsn: str, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    await books.execute(TERM, 1, "acquired")
    await books.execute(EVENT, 1, 2)
    [wrong] = await Books(dsn).faults(BEGINNING)
    assert wrong.startswith("written outside of its range")


async def test_a_history_whose_ranges_go_back_is_found(
    dsn: str, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    await books.execute(TERM, 1, "acquired")
    await books.execute(EVENT, 2, 1)
    await books.execute(TERM, 2, "acquired")
    await books.execute(EVENT, 1, 2)
    assert await Books(dsn).faults(BEGINNING) == ["1 events of a range below the one before"]


async def test_two_charges_under_one_key_are_found(
    dsn: str, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    await books.execute(CHARGE, "key-1")
    await books.execute(CHARGE, "key-1")
    assert await Books(dsn).faults(BEGINNING) == ["charged again: key-1"]


def test_the_longest_stall_counts_calls_that_never_ended() -> None:
    def entry(second: int, operation: Operation, who: str) -> Entry:
        at = datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC).isoformat()
        return Entry(
            at=at, operation=operation, call="start", workflow_id=who, request_id=f"r-{who}"
        )

    assert longest_stall([]) == 0
    ended = [entry(0, "invoke", "a"), entry(3, "ok", "a"), entry(4, "invoke", "b")]
    assert longest_stall(ended) == 3
    assert longest_stall([*ended, entry(9, "invoke", "c")]) == 5
