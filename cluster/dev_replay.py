"""Tries new code on the histories of the open runs before it takes their tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odin.core.definition import WorkflowDefinition, WorkflowInfo
from odin.core.events import HistoryEvent
from odin.core.instance import Instance
from odin.errors import OdinError
from odin.runtime.postgres import connect
from odin.runtime.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.cli.authored import Found

RUNS_MAX: Final = 100
EVENTS_MAX: Final = 5_000

_SQL = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An open run with its history."""

    workflow_id: str
    run_id: str
    workflow_type: str
    events: tuple[HistoryEvent, ...]
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Stuck:
    """An open run that cannot go on with the code at hand.

    Attributes:
        message: Why.
        source: The line of code, `file:line`; empty if there is none.
    """

    workflow_id: str
    workflow_type: str
    message: str
    source: str


async def open_runs(dsn: str, namespace: str, task_queue: str) -> list[OpenRun]:
    """Return the newest open runs of a task queue, those with long histories left out.

    Raises:
        OSError, asyncpg.PostgresError: Postgres cannot be read now.
    """
    connection = await connect(dsn, application_name="odin-dev")
    try:
        rows = await connection.fetch(_SQL["open_runs"], namespace, task_queue, RUNS_MAX)
        found = []
        for row in rows:
            stored = await connection.fetch(
                _SQL["read_history"], row["shard_id"], row["run_id"], EVENTS_MAX + 1
            )
            if len(stored) > EVENTS_MAX:
                continue
            events = tuple(HistoryEvent(*one) for one in stored)
            workflow_id, run_id = row["workflow_id"], str(row["run_id"])
            found.append(OpenRun(workflow_id, run_id, row["workflow_type"], events, namespace))
        return found
    finally:
        await connection.close()


async def bury_nodes(dsn: str) -> None:
    """Mark the engines of earlier processes dead, so that nobody waits for their leases.

    Only for a database that the caller alone uses.

    Raises:
        OSError, asyncpg.PostgresError: Postgres cannot be reached.
    """
    connection = await connect(dsn, application_name="odin-dev")
    try:
        await connection.execute(_SQL["bury_nodes"])
    finally:
        await connection.close()


async def stuck_runs(runs: Sequence[OpenRun], found: Found) -> list[Stuck]:
    """Return the runs whose replay fails; the loop gets its turn between any two."""
    known = {one.name: one for one in map(WorkflowDefinition.of, found.workflows)}
    stuck = []
    for run in runs:
        definition = known.get(run.workflow_type)
        if definition is None:
            message = f"no module holds a workflow of type {run.workflow_type!r} any more"
            stuck.append(Stuck(run.workflow_id, run.workflow_type, message, ""))
        elif (failed := _replayed(run, definition)) is not None:
            stuck.append(failed)
        await asyncio.sleep(0)
    return stuck


def _replayed(run: OpenRun, definition: WorkflowDefinition) -> Stuck | None:
    """Replay a run and try its next workflow task; what it asks for then is thrown away."""
    info = WorkflowInfo(run.namespace, run.workflow_id, run.run_id)
    instance = Instance(definition, info)
    try:
        instance.apply(run.events)
        if instance.closed or not run.events:
            return None
        failure = instance.run_task(run.events[-1].recorded_at_us).failure
    except OdinError as error:
        failure = getattr(error, "failure", None)
        if failure is None:
            return Stuck(run.workflow_id, run.workflow_type, str(error), "")
    finally:
        instance.evict()
    if failure is None:
        return None
    return Stuck(run.workflow_id, run.workflow_type, failure.message, failure.source)
