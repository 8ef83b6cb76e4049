"""The activities, the workflow and the first steps that the tests of the worker share."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from odin import activity, workflow
from odin.core import events as e
from odin.core import wire
from odin.core.commands import ScheduleActivity
from odin.core.payload import Payload, decode
from odin.worker import Worker
from tests.worker.peer import History, Peer, scheduled

OTHER_RUN = "01890000-0000-7000-8000-000000000002"


@activity.defn
async def greet(name: str) -> str:
    return f"hello {name}"


@activity.defn
async def endless() -> str:
    await asyncio.Event().wait()
    return ""


@activity.defn
def in_a_thread(number: int) -> list[object]:
    return [number + 1, threading.current_thread().name, activity.info().idempotency_key]


@activity.defn
def thread_until_told() -> str:
    return "told" if activity.wait_for_cancelled_sync(10) else "not told"


@activity.defn
async def beats() -> None:
    activity.heartbeat("first")
    activity.heartbeat("second")
    raise activity.ApplicationError("no more", type="Tired", non_retryable=True)


@activity.defn
async def returns_a_nan() -> float:
    return float("nan")


@workflow.defn
async def greeting(name: str) -> str:
    first = await workflow.execute_activity(greet, name)
    return await workflow.execute_activity(greet, first)


ACTIVITIES = [greet, endless, in_a_thread, thread_until_told, beats, returns_a_nan]


def worker_of(*peers: Peer, **fields: object) -> Worker:
    base: dict[str, Any] = {
        "workflows": [greeting],
        "activities": ACTIVITIES,
        "broker": "embedded",
        "graceful_shutdown_timeout": timedelta(seconds=0.2),
    }
    return Worker([one.address for one in peers], **(base | fields))


def first(payload: Payload | None) -> Any:  # noqa: ANN401 - user values have any type
    assert payload is not None
    return decode(payload)


async def run_first_task(engine: Peer, history: History) -> ScheduleActivity:
    """Bring a run to the point where its first activity is scheduled and it is warm."""
    engine.say(wire.Tasks(1, "default", (history.task(),)))
    engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
    report = await engine.hear(wire.ReportWorkflowTask)
    command = report.commands[0]
    assert isinstance(command, ScheduleActivity)
    engine.say(history.accept(report, scheduled(command)))
    return command


async def start_attempt(
    engine: Peer, history: History, name: str, *arguments: object, **changes: object
) -> wire.ClaimActivityTask:
    engine.say(wire.Tasks(9, "default", (history.task(7, "a"),)))
    claim = await engine.hear(wire.ClaimActivityTask)
    engine.say(history.activity(claim, name, *arguments, **changes))
    return claim


async def ended(engine: Peer) -> wire.ActivityOutcome:
    done = await engine.hear(wire.ReportActivityTask)
    engine.say(wire.ActivityReportAnswered(done.seq, accepted=True))
    return done.outcome


async def finish_activity(engine: Peer, history: History, command: ScheduleActivity) -> None:
    engine.say(wire.Tasks(2, "default", (history.task(command.command_id, "a"),)))
    claim = await engine.hear(wire.ClaimActivityTask)
    engine.say(history.activity(claim, command.activity_type, first(command.input[0])))
    done = await engine.hear(wire.ReportActivityTask)
    assert done.claim_token == claim.claim_token
    engine.say(wire.ActivityReportAnswered(done.seq, accepted=True))
    assert done.outcome.result is not None
    history.append(
        e.ActivityTaskCompleted(command_id=command.command_id, result=done.outcome.result)
    )


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
