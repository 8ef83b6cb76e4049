"""What the store's tests share: executions, groups, and waiting for a lock rather than for time."""

import asyncio
from typing import Any

import asyncpg
import msgspec

from engine.store import EventWrite, Group, Store
from odin.core.events import HistoryEvent
from odin.core.execution import Execution, WorkflowTask
from odin.errors import OutcomeUnknownError
from odin.runtime.ids import SystemIds

IDS = SystemIds()
SHARDS = 8
NOW_US = 1_764_500_000_123_457
LOCKED = """
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def run(shard_id: int = 0, workflow_id: str = "order-1", **fields: object) -> Execution:
    """Return a run that has just been started."""
    run_id = IDS.run_id()
    values: dict[str, object] = {
        "namespace": "default",
        "first_run_id": run_id,
        "workflow_type": "order",
        "task_queue": "default",
        "next_event_id": 2,
        "state_token": 1,
        "started_us": NOW_US,
        "last_event_us": NOW_US,
        "workflow_task": WorkflowTask("scheduled", 1, 1, NOW_US + 10_000_000),
    }
    values |= {"shard_id": shard_id, "workflow_id": workflow_id, "run_id": run_id}
    return msgspec.convert(values | fields, Execution)


def event(execution: Execution, event_id: int, size: int = 5) -> EventWrite:
    """Return an event of the run."""
    stored = HistoryEvent(event_id, "timer_fired", NOW_US + event_id, b"x" * size)
    return EventWrite(execution.shard_id, execution.run_id, stored)


def starting(incarnation: str, terms: dict[int, int], *executions: Execution) -> Group:
    """Return the group that starts the runs."""
    return Group(
        incarnation,
        terms={one.shard_id: terms[one.shard_id] for one in executions},
        inserts={one.run_id: one for one in executions},
        events=[event(one, 1) for one in executions],
    )


async def until_waiting_for_a_lock(connection: "asyncpg.Connection[Any]", count: int = 1) -> None:
    """Return once `count` backends of this database wait for a lock."""
    async with asyncio.timeout(5):
        while await connection.fetchval(LOCKED) < count:
            await asyncio.sleep(0.005)


async def take_all(store: Store, incarnation: str) -> dict[int, int]:
    """Acquire every shard and return the terms."""
    terms = {}
    for shard_id in range(SHARDS):
        try:
            range_id = await store.acquire(shard_id, incarnation, holds_term=False)
        except OutcomeUnknownError:  # as an engine does: the next attempt finds out
            range_id = await store.acquire(shard_id, incarnation, holds_term=False)
        assert range_id is not None
        terms[shard_id] = range_id
    return terms
