"""What `odin dev` does in its database before it hosts new code."""

import asyncpg

from cluster.dev_replay import OpenRun, bury_nodes, open_runs, stuck_runs
from odin import workflow
from odin.cli.authored import Found
from odin.core.events import (
    Event,
    TimerStarted,
    WorkflowExecutionStarted,
    WorkflowTaskCompleted,
    to_history,
)
from odin.core.payload import encode


async def test_engines_of_a_killed_process_hold_nothing_afterwards(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "INSERT INTO node (incarnation, node_id, address, lease_until)"
            " VALUES ('gone', 'dev', 'http://127.0.0.1:1', clock_timestamp() + interval '9 s')"
        )
        await bury_nodes(dsn)
        assert await connection.fetchval("SELECT state FROM node") == "dead"
    finally:
        await connection.close()


async def test_an_empty_database_has_no_open_runs(dsn: str) -> None:
    assert await open_runs(dsn, "default", "default") == []


@workflow.defn(name="sleeper")
async def sleeps(seconds: float) -> None:
    await workflow.sleep(seconds)


@workflow.defn(name="sleeper")
async def returns(seconds: float) -> None: ...


def _sleeping() -> OpenRun:
    started = WorkflowExecutionStarted(
        workflow_type="sleeper", task_queue="default", first_run_id="r", input=(encode(60.0),)
    )
    events: list[Event] = [
        started,
        WorkflowTaskCompleted(seen=1, time_us=2, worker="w"),
        TimerStarted(command_id=1, duration_ms=60_000, fires_at_us=60_000_002),
    ]
    history = tuple(to_history(one, place, place) for place, one in enumerate(events, 1))
    return OpenRun("w", "r", "sleeper", history)


async def test_only_runs_that_the_code_does_not_fit_are_stuck() -> None:
    runs = [_sleeping()]
    assert await stuck_runs(runs, Found(workflows=[sleeps])) == []
    (stuck,) = await stuck_runs(runs, Found(workflows=[returns]))
    assert "timer 1" in stuck.message
    (unknown,) = await stuck_runs(runs, Found(workflows=[]))
    assert "'sleeper'" in unknown.message
