"""The tasks, futures and handles of a workflow's loop: asyncio's, with one order everywhere."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from odin.core.loop import WorkflowLoop

T = TypeVar("T")

_DURATION_MS_MAX: Final = 2**53


class DeterministicFuture(asyncio.Future[T]):
    """A future that hashes by its number inside the run, so that sets of futures have one order."""

    __slots__ = ("sequence",)

    def __init__(self, loop: WorkflowLoop) -> None:
        self.sequence = loop.next_sequence()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.sequence


class DeterministicTask(asyncio.Task[T]):
    """A task that hashes by its number inside the run, so that sets of tasks have one order."""

    __slots__ = ("sequence",)

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        sequence: int,
        loop: WorkflowLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self.sequence = sequence  # before the base class, which puts the task into a set
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.sequence


class WorkflowHandle(asyncio.TimerHandle):
    """A callback in the ready queue, or waiting for its timer."""

    __slots__ = ("command_id", "loop")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: WorkflowLoop,
        context: Context | None,
        when: float = 0.0,
    ) -> None:
        # The base's constructor would do more than is needed here, for every step of every task.
        self._callback = callback
        self._args = args
        self._loop = self.loop = loop
        self._context = context if context is not None else copy_context()
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.command_id = 0

    def run(self) -> None:
        """Call back, unless cancelled."""
        if not self._cancelled:
            self._context.run(self._callback, *self._args)

    def cancel(self) -> None:
        """Forget the callback; a timer that waits is recorded as canceled."""
        if not self._cancelled:
            self._cancelled = True
            if self.command_id:
                self.loop.forget_timer(self.command_id)


class TimerFuture(DeterministicFuture[None]):
    """What `workflow.sleep` waits for: done when the timer fires."""

    __slots__ = ("command_id", "loop")

    def __init__(self, loop: WorkflowLoop, command_id: int) -> None:
        super().__init__(loop)
        self.loop = loop
        self.command_id = command_id

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - asyncio's signature
        """Cancel the wait; the timer is recorded as canceled."""
        if self.done():
            return False
        self.loop.forget_timer(self.command_id)
        return super().cancel(msg)


def duration_ms_of(seconds: float) -> int:
    """Return a delay as whole milliseconds, rounded up, so that no timer is early.

    Raises:
        ValueError: It is not a finite number, or no sensible span of time.
    """
    if not isfinite(seconds):
        raise ValueError(f"a delay is a finite number of seconds, got {seconds!r}")
    # Seconds since 1970 as floats are exact to a quarter of a microsecond only: what
    # asyncio.timeout(5) computes from them must not become 5001 ms.
    duration_ms = ceil(round(seconds * 1_000, 2))
    if duration_ms > _DURATION_MS_MAX:
        raise ValueError(f"a delay of {seconds!r} s is beyond all reason")
    return duration_ms
