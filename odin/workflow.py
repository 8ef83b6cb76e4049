"""What the author of a workflow imports: `from odin import workflow`.

    @workflow.defn
    class Order:
        @workflow.run
        async def run(self, order: OrderInput) -> Receipt:
            return await workflow.execute_activity(charge, order)

or, where no signals are needed, a plain function:

    @workflow.defn
    async def order(order: OrderInput) -> Receipt: ...

The code must do the same at every replay: asyncio works as ever, in an order of its own; clocks,
dice, threads and I/O are refused with the alternative named.
"""

from __future__ import annotations

import asyncio
import logging
import uuid as _uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from odin._current import NotInWorkflowError, current_run, current_run_or_none
from odin._workflow_activities import (
    ActivityOptions,
    execute_activity,
    execute_activity_method,
    start_activity,
    start_activity_method,
)
from odin._workflow_defn import defn, init, run, signal
from odin._workflow_info import Info, info_of, instant
from odin.common import RetryPolicy, duration_ms
from odin.core.commands import ContinueAsNew
from odin.core.definition import WorkflowDefinition
from odin.core.failures import ContinueAsNewError
from odin.core.handles import ActivityCancellationType, ActivityHandle
from odin.core.loop_parts import duration_ms_of
from odin.core.payload import encode, encode_all

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        MutableMapping,
        Sequence,
    )
    from datetime import datetime
    from random import Random

__all__ = [
    "ActivityCancellationType",
    "ActivityHandle",
    "ActivityOptions",
    "Info",
    "NotInWorkflowError",
    "RetryPolicy",
    "all_handlers_finished",
    "as_completed",
    "cancellation_reason",
    "continue_as_new",
    "defn",
    "execute_activity",
    "execute_activity_method",
    "in_workflow",
    "info",
    "init",
    "is_cancel_requested",
    "logger",
    "now",
    "random",
    "run",
    "set_signal_handler",
    "signal",
    "sleep",
    "start_activity",
    "start_activity_method",
    "time",
    "time_ns",
    "unsafe",
    "uuid4",
    "wait",
    "wait_condition",
]

T = TypeVar("T")
_MISSING: Any = object()


def in_workflow() -> bool:
    """Return whether the calling code is a workflow's."""
    return current_run_or_none() is not None


def info() -> Info:
    """Return who the running workflow is."""
    return info_of(current_run())


def now() -> datetime:
    """Return the time of the workflow task, in UTC: the same at every replay."""
    return instant(current_run().loop.now_us)


def time() -> float:
    """Return `now()` as seconds since 1970."""
    return current_run().loop.time()


def time_ns() -> int:
    """Return `now()` as nanoseconds since 1970."""
    return current_run().loop.now_us * 1_000


def random() -> Random:
    """Return the run's own dice, which throw the same at every replay."""
    return current_run().random


def uuid4() -> _uuid.UUID:
    """Return a random UUID from the run's own dice."""
    return _uuid.UUID(int=current_run().random.getrandbits(128), version=4)


def is_cancel_requested() -> bool:
    """Return whether somebody has asked the run to stop, even if the code went on since."""
    return current_run().cancel_requested


def cancellation_reason() -> str | None:
    """Return the reason that was given with the request to stop; None if there was no request."""
    asked = current_run()
    return asked.cancel_reason if asked.cancel_requested else None


def all_handlers_finished() -> bool:
    """Return whether no signal handler is under way; to be awaited before a workflow returns."""
    return current_run().running_handlers == 0


async def sleep(duration: float | timedelta, *, summary: str | None = None) -> None:
    """Wait by a durable timer: it outlives every crash, and costs nothing while it waits.

    Args:
        duration: Seconds or a timedelta, kept to the millisecond; 0 lets other tasks run, without
            a timer. summary: Shown in the dashboard.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    span_ms = duration_ms_of(seconds)
    if span_ms <= 0:
        await asyncio.sleep(0)
    else:
        await current_run().loop.timer(span_ms, summary or "")


async def wait_condition(
    fn: Callable[[], bool],
    *,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109 - the keyword that users know
) -> None:
    """Wait until `fn()` is true. It is asked again after everything that happens to the workflow.

    Args:
        fn: Must only read.
        timeout: Longest wait, seconds or a timedelta.

    Raises:
        TimeoutError: The builtin one; `fn()` has not become true in time.
    """
    waiting = current_run()
    if waiting.check(fn):
        return
    future = waiting.loop.create_future()
    waiting.loop.conditions.append((fn, future))
    if timeout is None:
        await future
    else:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        async with asyncio.timeout(seconds):
            await future


async def wait(
    fs: Iterable[asyncio.Future[T]],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - asyncio's keyword
    return_when: str = asyncio.ALL_COMPLETED,
) -> tuple[list[asyncio.Future[T]], list[asyncio.Future[T]]]:
    """Wait as `asyncio.wait` does, and return lists in the order of `fs` in place of sets."""
    ordered = list(dict.fromkeys(fs))
    done, _ = await asyncio.wait(ordered, timeout=timeout, return_when=return_when)
    return [f for f in ordered if f in done], [f for f in ordered if f not in done]


def as_completed(
    fs: Iterable[Awaitable[T]], *, timeout: float | None = None
) -> Iterator[Awaitable[T]]:
    """Return awaitables that give the results of `fs` as they come; coroutines start in order.

    As `asyncio.as_completed`, whose order differs between processes.
    """
    futures = [asyncio.ensure_future(f) for f in dict.fromkeys(fs)]  # noqa: TID251 - the futures are awaited below
    return asyncio.as_completed(futures, timeout=timeout)


def set_signal_handler(name: str, handler: Callable[..., Any] | None) -> None:
    """Set, replace or (with None) remove a signal's handler; what was kept for it goes to it."""
    current_run().set_signal_handler(name, handler)


def continue_as_new(
    arg: Any = _MISSING,  # noqa: ANN401 - any argument of the workflow
    *,
    args: Sequence[Any] = (),
    workflow: Callable[..., Any] | type | str | None = None,
    task_queue: str | None = None,
    run_timeout: timedelta | None = None,
    memo: Mapping[str, Any] | None = None,
) -> NoReturn:
    """End this run and start its successor, with a fresh history, under the same workflow id.

    Args:
        arg: The argument of the new run, if there is one.
        args: Its arguments, if there are several.
        workflow: Another workflow, decorated or by name; the same one when None.
        task_queue: Another task queue.
        run_timeout: Another limit for the new run.
        memo: Another memo.
    """
    ending = current_run()
    if arg is not _MISSING:
        args = (arg,)
    if workflow is None or isinstance(workflow, str):
        name = workflow
    else:
        name = WorkflowDefinition.of(workflow).name
    raise ContinueAsNewError(
        ContinueAsNew(
            input=encode_all(args),
            workflow_type=None if name == ending.info.workflow_type else name,
            task_queue=task_queue,
            run_timeout_ms=duration_ms(run_timeout),
            memo=None
            if memo is None
            else {key: encode(value, f"memo {key!r}") for key, value in memo.items()},
        )
    )


class unsafe:  # noqa: N801 - read as workflow.unsafe.is_replaying()
    """What a workflow should not decide by."""

    @staticmethod
    def is_replaying() -> bool:
        """Return whether the code runs through what it has done before."""
        return current_run().is_replaying


class _ReplaySafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs with the ids of the run, and says nothing while the code is replayed."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        here = current_run_or_none()
        if here is not None and (here.is_replaying or here.loop.evicting):
            return False
        return super().isEnabledFor(level)

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        here = current_run_or_none()
        if here is not None:
            ids = {
                "workflow_id": here.info.workflow_id,
                "run_id": here.info.run_id,
                "workflow_type": here.info.workflow_type,
            }
            kwargs["extra"] = {**ids, **kwargs.get("extra", {})}
        return msg, kwargs


logger = _ReplaySafeLogger(logging.getLogger("odin.workflow"))
