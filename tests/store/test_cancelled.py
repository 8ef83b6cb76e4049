"""Callers that give up: whatever they leave behind, connections and locks come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from engine.store import Store
from engine.store.connections import PoolSizes
from odin.errors import OdinError, OutcomeUnknownError

from .support import IDS, until_waiting_for_a_lock

HELD = """
SELECT count(*)
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE pg_stat_activity.datname = current_database()
    AND pg_locks.relation = 'shard'::regclass
    AND pid <> pg_backend_pid()
"""
END = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def shards_locked(dsn: str) -> AsyncIterator[None]:
    """Let everything that asks for a shard wait for the end of the block."""
    holder = await asyncpg.connect(dsn, timeout=10)
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE shard IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await holder.close()


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, OdinError, TimeoutError):
        await task


async def test_two_hundred_reads_given_up_cost_the_pool_no_connection(
    dsn: str, store: Store, admin: asyncpg.Connection[Any]
) -> None:
    async with Store(dsn, IDS.incarnation(), sizes=PoolSizes(reads=3)) as small:
        async with shards_locked(dsn):
            asked = [asyncio.create_task(small.cluster_view()) for _ in range(200)]
            await until_waiting_for_a_lock(admin, 3)
            for task in asked:  # three wait for the lock, the others for a connection
                await cancelled(task)
        async with asyncio.timeout(5):
            views = await asyncio.gather(*(small.cluster_view() for _ in range(3)))
    assert len(views) == 3


async def test_work_given_up_in_its_transaction_keeps_no_lock(
    store: Store, terms: dict[int, int], admin: asyncpg.Connection[Any]
) -> None:
    for number in range(100):
        entered = asyncio.Event()

        async def work(inside: asyncio.Event = entered) -> None:
            async with store.fenced(0, terms[0]):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work(), name=f"work {number}")
        waiting = asyncio.create_task(entered.wait(), name="until it has begun")
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            waiting.cancel()
            await task
        await cancelled(task)
    async with asyncio.timeout(3):
        while await admin.fetchval(HELD):
            await asyncio.sleep(0.01)
    async with store.fenced(0, terms[0]):
        pass


async def test_whoever_lost_a_connection_is_told_how_it_broke(
    dsn: str, store: Store, admin: asyncpg.Connection[Any]
) -> None:
    async with shards_locked(dsn):
        task = asyncio.create_task(store.acquire(0, store.incarnation, holds_term=False))
        await until_waiting_for_a_lock(admin)
        await admin.execute(END)
        await asyncio.wait({task})
        with pytest.raises(OutcomeUnknownError) as raised:
            await task
        assert "InterfaceError" not in str(raised.value), "that the pool let it go is no cause"
