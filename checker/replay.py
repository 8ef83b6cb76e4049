"""`python -m checker.replay`: replays stored histories and writes the finding to standard output.

Started by the checker in a process of its own, with PYTHONHASHSEED set: whatever workflow code
makes of the order of a set, or of `hash`, differs from the worker that wrote the history. The
replay itself is odin's own; what it is held against are the commands in the histories.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from odin.core.definition import WorkflowDefinition, WorkflowInfo
from odin.core.events import HistoryEvent
from odin.core.instance import Instance
from odin.errors import InvalidArgumentError, OdinError
from odin.runtime.postgres import connect

from .invariants.tally import Tally, ids
from .replaying import Order
from .snapshot import APPLICATION_NAME, SESSION, SQL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odin.proof.findings import Finding


def definitions(modules: Iterable[str]) -> dict[str, WorkflowDefinition]:
    """Return the workflows that the modules hold, by type.

    Raises:
        ImportError: There is no such module.
    """
    found: dict[str, WorkflowDefinition] = {}
    for name in modules:
        for value in vars(import_module(name)).values():
            try:
                definition = WorkflowDefinition.of(value)
            except InvalidArgumentError:
                continue
            found[definition.name] = definition
    return found


def failure_of(
    definition: WorkflowDefinition, info: WorkflowInfo, history: Sequence[HistoryEvent]
) -> str:
    """Replay one history; return why that failed in a few words, empty if it did not."""
    instance = Instance(definition, info)
    try:
        instance.apply(history)
    except OdinError as error:
        return error.reason
    finally:
        instance.evict()
    return ""


async def replay(dsn: str, order: Order) -> Finding:
    """Replay what `order` says.

    Raises:
        ImportError, OSError, asyncpg.PostgresError: Code or histories cannot be had.
    """
    known = definitions(order.modules)
    tally = Tally("I18", "no run of a known workflow in the window", idle_is_unknown=True)
    connection = await connect(dsn, application_name=APPLICATION_NAME, session=SESSION)
    try:
        rows = await connection.fetch(
            SQL["choose_replays"],
            *(order.since_us, order.until_us, list(known)),
            *(str(order.seed), order.events_max, order.runs_max),
        )
        for row in rows:
            stored = await connection.fetch(SQL["read_history"], row["shard_id"], row["run_id"])
            history = [HistoryEvent(*one) for one in stored]
            info = WorkflowInfo(row["namespace"], row["workflow_id"], row["run_id"])
            tally.judge(kind="runs")
            tally.counts["events"] += len(history)
            if failed := failure_of(known[row["workflow_type"]], info, history):
                tally.blame(ids((row["workflow_id"], row["run_id"])), f"replay fails: {failed}")
    finally:
        await connection.close(timeout=5)
    return tally.finding()


async def main() -> None:
    """Read the order, replay, write the finding."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    finding = await replay(os.environ["ODIN_POSTGRES_DSN"], order)
    sys.stdout.buffer.write(msgspec.json.encode(finding))


if __name__ == "__main__":
    asyncio.run(main())
