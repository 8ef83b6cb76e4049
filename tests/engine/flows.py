"""Workflows and activities that the engine's tests run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from odin import activity, workflow
from odin.common import RetryPolicy
from odin.exceptions import ActivityError, ApplicationError

SECOND = timedelta(seconds=1)
started: list[str] = []
"""What activities have begun, in order; tests look for their own ids in it."""


@activity.defn
async def echo(value: str) -> str:
    """Return what came in."""
    return value


@activity.defn
async def fail_until(key: str, attempt: int) -> int:
    """Fail before the given attempt."""
    started.append(f"{key}:{activity.info().attempt}")
    if activity.info().attempt < attempt:
        raise ApplicationError("not yet", type="NotYet")
    return activity.info().attempt


@activity.defn
async def refuse(key: str) -> None:
    """Fail for good."""
    started.append(key)
    raise ApplicationError("never", type="Never", non_retryable=True)


@activity.defn
async def hang_first(key: str) -> int:
    """Take for ever in the first attempt."""
    started.append(f"{key}:{activity.info().attempt}")
    if activity.info().attempt == 1:
        await asyncio.sleep(3600)
    return activity.info().attempt


@activity.defn
async def hang(key: str) -> None:
    """Take for ever; note a cancellation."""
    started.append(key)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        started.append(f"{key}:canceled")
        raise


@workflow.defn
async def one_step(value: str) -> str:
    """One activity."""
    return await workflow.execute_activity(echo, value, start_to_close_timeout=10 * SECOND)


@workflow.defn
async def many_steps(count: int) -> int:
    """Activities in sequence."""
    for number in range(count):
        await workflow.execute_activity(echo, str(number), start_to_close_timeout=10 * SECOND)
    return count


@workflow.defn
async def fan_out(count: int) -> list[str]:
    """Activities side by side."""
    return await asyncio.gather(
        *(
            workflow.execute_activity(echo, str(number), start_to_close_timeout=10 * SECOND)
            for number in range(count)
        )
    )


@workflow.defn
async def retried(key: str, attempt: int) -> int:
    """An activity that fails a few times."""
    return await workflow.execute_activity(
        fail_until,
        args=[key, attempt],
        start_to_close_timeout=10 * SECOND,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=20)),
    )


@workflow.defn
async def refused(key: str) -> str:
    """An activity that fails for good, and is caught."""
    try:
        await workflow.execute_activity(refuse, key, start_to_close_timeout=10 * SECOND)
    except ActivityError as error:
        cause = error.cause
        return f"{type(cause).__name__}:{getattr(cause, 'type', '')}"
    return "no error"


@workflow.defn
async def timed_out(key: str) -> int:
    """An activity whose first attempt outlives its start_to_close timeout."""
    return await workflow.execute_activity(
        hang_first,
        key,
        start_to_close_timeout=timedelta(milliseconds=300),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=20)),
    )


@workflow.defn
async def sleeper(milliseconds: int) -> float:
    """Sleep; return how long it took by the workflow's own time."""
    before = workflow.time()
    await workflow.sleep(timedelta(milliseconds=milliseconds))
    return workflow.time() - before


@workflow.defn
class Collect:
    """Collect signals until told the last one."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.is_done = False

    @workflow.run
    async def run(self) -> list[int]:
        """Wait for the end."""
        await workflow.wait_condition(lambda: self.is_done)
        return self.values

    @workflow.signal
    def add(self, value: int) -> None:
        """Take a value."""
        self.values.append(value)

    @workflow.signal
    def finish(self) -> None:
        """Let the run end."""
        self.is_done = True


@workflow.defn
class CountOn:
    """Count signals, a few per run, and continue as new until the goal is reached."""

    def __init__(self) -> None:
        self.new = 0

    @workflow.run
    async def run(self, count: int, goal: int) -> int:
        """Continue as new after each signal."""
        await workflow.wait_condition(lambda: self.new > 0)
        total = count + self.new
        if total >= goal:
            return total
        workflow.continue_as_new(args=[total, goal])
        raise AssertionError("not reached")

    @workflow.signal
    def tick(self) -> None:
        """Count one."""
        self.new += 1


@workflow.defn
async def cleaned_up(key: str) -> str:
    """Hang in an activity; clean up with another when cancelled."""
    try:
        await workflow.execute_activity(hang, key, start_to_close_timeout=60 * SECOND)
    except asyncio.CancelledError:
        await workflow.execute_activity(echo, key, start_to_close_timeout=10 * SECOND)
        raise
    except ActivityError:
        await workflow.execute_activity(echo, key, start_to_close_timeout=10 * SECOND)
        raise
    return "not cancelled"


@workflow.defn
async def broken(_key: str) -> str:
    """A bug: fails its task, never the run."""
    raise ValueError("a bug in the workflow")


WORKFLOWS: list[object] = [
    one_step,
    many_steps,
    fan_out,
    retried,
    refused,
    timed_out,
    sleeper,
    Collect,
    CountOn,
    cleaned_up,
    broken,
]
ACTIVITIES: list[Callable[..., Any]] = [echo, fail_until, refuse, hang_first, hang]
