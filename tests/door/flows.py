"""Workflows and activities that bring what nobody should bring."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from odin import activity, workflow
from odin.common import RetryPolicy
from odin.exceptions import ActivityError, ApplicationError

TEN = timedelta(seconds=10)
ONCE = RetryPolicy(maximum_attempts=1)


class Opaque:
    """Something that no encoder knows."""


def nested(depth: int) -> object:
    """Return lists in lists."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


POISON: dict[str, Callable[[], object]] = {
    "surrogate": lambda: "\ud800",
    "nan": lambda: math.nan,
    "infinity": lambda: [math.inf],
    "deep": lambda: nested(10_000),
    "a little too deep": lambda: nested(70),
    "huge": lambda: "x" * (300 * 1024),
    "set": lambda: {1, 2},
    "object": Opaque,
    "big integer": lambda: 10**30,
    "key": lambda: {1: 2},
    "surrogate key": lambda: {"\udfff": 1},
}
"""Results that cannot be kept."""
FINE: dict[str, Callable[[], object]] = {
    "nul": lambda: "\x00",
    "bytes": lambda: b"\x00\xff",
    "empty": lambda: "",
    "deep enough": lambda: nested(60),
    "large enough": lambda: "x" * (256 * 1024 - 2),
}
"""Results that look dangerous and can be kept exactly."""


@activity.defn
async def make(kind: str) -> Any:  # noqa: ANN401 - that is the point
    """Return something."""
    return (POISON | FINE)[kind]()


@activity.defn
async def fail_with(kind: str) -> None:
    """Fail with a message, a type or details that are hard to keep."""
    match kind:
        case "nul":
            raise RuntimeError("a\x00b")
        case "surrogate":
            raise RuntimeError("a\ud800b")
        case "1 MB":
            raise RuntimeError("m" * 1_000_000)
        case "details":
            raise ApplicationError("details", *["d" * 200_000] * 30)
        case "bad details":
            raise ApplicationError("details", Opaque(), type="T" * 5_000)
        case "broken str":
            raise BrokenTextError
        case _:
            raise _chain(100)


class BrokenTextError(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError("no text")


def _chain(length: int) -> Exception:
    error: Exception = ValueError("x" * 5_000)
    for _ in range(length):
        following = ValueError("x" * 5_000)
        following.__cause__ = error
        error = following
    return error


@activity.defn
async def beat(kind: str) -> str:
    """Send heartbeat details that cannot be kept, and go on."""
    activity.heartbeat((POISON | FINE)[kind]())
    return "done"


@activity.defn
async def length(*values: str) -> int:
    """Return how much came in."""
    return sum(len(value) for value in values)


@activity.defn
async def number(value: int) -> int:
    """Return what came in."""
    return value


@activity.defn
async def big(_key: int) -> str:
    """Return as much as one value may have."""
    return "x" * (256 * 1024 - 2)


async def _told(name: str, kind: str) -> str:
    """Run an activity once; return how it ended."""
    try:
        value = await workflow.execute_activity(
            name, kind, start_to_close_timeout=TEN, retry_policy=ONCE
        )
    except ActivityError as error:
        return f"failed: {error.cause}"[:2_000]
    return f"kept: {value!r}"[:40]


@workflow.defn
async def one_activity(name: str, kind: str) -> str:
    """Run an activity once; return how it ended."""
    return await _told(name, kind)


@workflow.defn
async def returns(kind: str) -> Any:  # noqa: ANN401 - that is the point
    """Return something from the workflow itself."""
    return (POISON | FINE)[kind]()


@workflow.defn
async def fails(kind: str) -> None:
    """Fail the workflow itself with something hard to keep."""
    if kind == "details":
        raise ApplicationError("details", *["d" * 200_000] * 10)
    raise ApplicationError("m\x00\ud800" * 100_000)


@workflow.defn
async def passes(count: int, size: int) -> int:
    """Hand an activity many large arguments."""
    return int(
        await workflow.execute_activity(
            "length", args=["x" * size] * count, start_to_close_timeout=TEN
        )
    )


@workflow.defn
async def fan(count: int, size: int) -> int:
    """Start many activities at once, each with an argument of a size."""
    values = await asyncio.gather(
        *(
            workflow.execute_activity("length", "x" * size, start_to_close_timeout=3 * TEN)
            for _ in range(count)
        )
    )
    return sum(values)


@workflow.defn
async def heavy(count: int) -> int:
    """Collect large results, one after another, then wait to be told."""
    total = 0
    for key in range(count):
        total += len(await workflow.execute_activity("big", key, start_to_close_timeout=TEN))
    return total


@workflow.defn
class Waits:
    """Waits for ever, and keeps signals."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.is_done = False

    @workflow.run
    async def run(self, *_values: Any) -> int:  # noqa: ANN401 - anything at all
        """Wait."""
        await workflow.wait_condition(lambda: self.is_done)
        return len(self.values)

    @workflow.signal
    def add(self, value: Any) -> None:  # noqa: ANN401 - anything at all
        """Keep a value."""
        self.values.append(value)

    @workflow.signal
    def finish(self) -> None:
        """Let the run end."""
        self.is_done = True


@workflow.defn
async def calls_unknown(name: str) -> str:
    """Call an activity that no worker knows."""
    return str(await workflow.execute_activity(name, start_to_close_timeout=TEN))


@workflow.defn
async def echoes(value: Any) -> Any:  # noqa: ANN401 - anything at all
    """Return what came in."""
    return value


WORKFLOWS: list[object] = [
    one_activity,
    returns,
    fails,
    passes,
    fan,
    heavy,
    Waits,
    calls_unknown,
    echoes,
]
ACTIVITIES: list[Callable[..., Any]] = [make, fail_with, beat, length, number, big]
