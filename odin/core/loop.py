"""The event loop that runs one workflow: asyncio's rules, in the same order everywhere.

Ready callbacks run first in, first out. Tasks and futures hash by a number that counts up per run,
so that the sets in which asyncio keeps them iterate in the same order everywhere. Time stands
still while the loop runs: `time()` is that of the workflow task. Timers are durable: the host
records them, and fires them when the history says so.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, TypeVarTuple

from odin.core.failures import EvictedError, WorkflowTaskError
from odin.core.forbidden import ForbiddingLoop
from odin.core.loop_parts import (
    DeterministicFuture,
    DeterministicTask,
    TimerFuture,
    WorkflowHandle,
    duration_ms_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextvars import Context
    from types import CodeType, FrameType

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TICKS_MAX: Final = 100_000
CPU_SECONDS_MAX: Final = 2.0
_CHECK_EVERY_TICKS: Final = 64
_SWEPT_AT: Final = 64
_REAWAITS_MAX: Final = 100
# The code by which the guard below knows who makes a task; Python 3.12 has one function where there
# were two.
_ENSURE_FUTURE: Final[CodeType] = getattr(
    asyncio.tasks,
    "_ensure_future",
    asyncio.ensure_future,  # noqa: TID251 - only its code
).__code__
_AS_COMPLETED: Final = asyncio.as_completed.__code__


class LoopHost(Protocol):
    """What the loop asks of the run that it belongs to."""

    def start_timer(self, duration_ms: int, summary: str) -> int:
        """Record that a timer is wanted; return its command id."""

    def cancel_timer(self, command_id: int) -> None:
        """Record that the timer is no longer wanted."""

    def check(self, condition: Callable[[], bool]) -> bool:
        """Return whether a condition holds; it may only read."""


class WorkflowLoop(ForbiddingLoop):
    """One run's loop. It never waits: `drain` runs what is ready and returns.

    Args:
        host: The run; it records timers.
        cpu_time: CPU seconds used by this thread, to enforce the budget of a workflow task.

    Attributes:
        conditions: What waits until a function is true.
        evicting: Whether the run leaves the memory; nothing it does has an effect any more.
        now_us: The time of the workflow task, microseconds since 1970.
        stopped: Set from inside to leave `drain` after the running callback.
    """

    def __init__(self, host: LoopHost, cpu_time: Callable[[], float]) -> None:
        self.host = host
        self.conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.evicting = False
        self.now_us = 0
        self.stopped = False
        self._cpu_time = cpu_time
        self._cpu_limit = 0.0
        self._ticks = 0
        self._sequence = 0
        self._ready: deque[WorkflowHandle] = deque()
        self._timers: dict[int, WorkflowHandle | TimerFuture] = {}
        self._tasks: list[DeterministicTask[Any]] = []
        self._tasks_sweep_at = _SWEPT_AT
        self._asyncgens: list[Any] = []
        self._asyncgens_sweep_at = _SWEPT_AT

    # Running.

    def begin(self, now_us: int) -> None:
        """Set the time of the workflow task that begins, and start its budget."""
        self.now_us = now_us
        self._ticks = 0
        self._cpu_limit = self._cpu_time() + CPU_SECONDS_MAX

    def drain(self) -> None:
        """Run what is ready until nothing is; then what waits for conditions, as they become true.

        Raises:
            WorkflowTaskError: The budget of the workflow task is used up.
        """
        ready = self._ready
        while True:
            while ready:
                self._ticks += 1
                if not self._ticks % _CHECK_EVERY_TICKS:
                    self.check_budget()
                ready.popleft().run()
                if self.stopped:
                    return
            if not self.conditions or not self._wake_one():
                return

    def _wake_one(self) -> bool:
        """Wake the first wait whose condition holds; only one, so that it still holds then."""
        self.conditions = [wait for wait in self.conditions if not wait[1].done()]
        for condition, future in self.conditions:
            try:
                if not self.host.check(condition):
                    continue
                future.set_result(None)
            except Exception as error:  # noqa: BLE001 - user code: whoever waits gets its error
                future.set_exception(error)
            return True
        return False

    def check(self) -> None:
        """Raise what went wrong in the workflow task, if something did."""
        if self.fault is not None:
            raise self.fault
        self.check_budget()

    def check_budget(self) -> None:
        """Refuse to go on when the workflow task has used up its budget.

        Raises:
            WorkflowTaskError: It has.
        """
        if self._ticks >= TICKS_MAX:
            raise WorkflowTaskError(
                f"the workflow task made {TICKS_MAX} steps without coming to rest: look for a loop"
                " that awaits only what is done already, such as `while ...: await"
                " asyncio.sleep(0)`; use workflow.wait_condition"
            )
        if self._cpu_time() > self._cpu_limit:
            raise WorkflowTaskError(
                f"the workflow task used more than {CPU_SECONDS_MAX:g} s of CPU time: move the"
                " computing into an activity"
            )

    def enter(self) -> tuple[asyncio.AbstractEventLoop | None, Any]:
        """Make this the thread's running loop; give the result to `leave`."""
        outer = (events._get_running_loop(), sys.get_asyncgen_hooks())  # noqa: SLF001 - in its __all__
        sys.set_asyncgen_hooks(firstiter=self._remember, finalizer=None)
        events._set_running_loop(self)  # noqa: SLF001 - in its __all__
        return outer

    @staticmethod
    def leave(outer: tuple[asyncio.AbstractEventLoop | None, Any]) -> None:
        """Give the thread back the loop that it ran before."""
        events._set_running_loop(outer[0])  # noqa: SLF001 - in its __all__
        sys.set_asyncgen_hooks(*outer[1])

    def _remember(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold a generator until it is done: the garbage collector would end it at any time."""
        if len(self._asyncgens) >= self._asyncgens_sweep_at:
            self._asyncgens = [known for known in self._asyncgens if known.ag_frame is not None]
            self._asyncgens_sweep_at = _SWEPT_AT + 2 * len(self._asyncgens)
        self._asyncgens.append(generator)

    def next_sequence(self) -> int:
        """Return the next number of a task or future."""
        self._sequence += 1
        return self._sequence

    # Timers.

    def timer(self, duration_ms: int, summary: str) -> TimerFuture:
        """Start a durable timer and return what it resolves."""
        command_id = self.host.start_timer(duration_ms, summary)
        future = self._timers[command_id] = TimerFuture(self, command_id)
        return future

    def fire(self, command_id: int) -> None:
        """The history says that the timer fired. One that was canceled before is ignored."""
        timer = self._timers.pop(command_id, None)
        if isinstance(timer, TimerFuture):
            timer.set_result(None)
        elif timer is not None:
            timer.command_id = 0
            self._ready.append(timer)

    def forget_timer(self, command_id: int) -> None:
        """The code no longer wants the timer."""
        del self._timers[command_id]
        if not self.evicting:
            self.host.cancel_timer(command_id)

    # asyncio's interface.

    def time(self) -> float:
        """Return the workflow task's time in seconds since 1970."""
        return self.now_us / 1_000_000

    def get_debug(self) -> bool:
        """Return False: debug mode would change what is run."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Ignore the wish."""

    def is_running(self) -> bool:
        """Return whether this thread runs this loop now."""
        return events._get_running_loop() is self  # noqa: SLF001 - in its __all__

    def is_closed(self) -> bool:
        """Return whether the run left the memory."""
        return self.evicting

    def create_future(self) -> DeterministicFuture[Any]:
        """Return a future with a number of its own."""
        return DeterministicFuture(self)

    def create_task(  # type: ignore[override] # the base takes generators, too
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> DeterministicTask[T]:
        """Return a task with a number of its own; the loop holds it until it is done."""
        if self.evicting:
            coro.close()
            raise EvictedError
        caller = sys._getframe(1)  # noqa: SLF001 - tells who makes a task
        if caller.f_code is _ENSURE_FUTURE and _leads_to_as_completed(caller):
            coro.close()
            self.forbid(
                "asyncio.as_completed with bare coroutines",
                "their order differs between processes; use workflow.as_completed",
            )
        sequence = self.next_sequence()
        known_as = f"Task-{sequence}" if name is None else str(name)
        task = DeterministicTask(coro, sequence, self, known_as, context)
        if len(self._tasks) >= self._tasks_sweep_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._tasks_sweep_at = _SWEPT_AT + 2 * len(self._tasks)
        self._tasks.append(task)
        return task

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` after what is ready now."""
        handle = WorkflowHandle(callback, args, self, context)
        if not self.evicting:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` as a durable timer of `delay` seconds fires; soon if it is not above 0."""
        if self.evicting:
            raise EvictedError
        duration_ms = duration_ms_of(delay)
        handle = WorkflowHandle(callback, args, self, context, self.time() + delay)
        if duration_ms <= 0:
            self._ready.append(handle)
        else:
            handle.command_id = self.host.start_timer(duration_ms, "")
            self._timers[handle.command_id] = handle
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when` seconds since 1970, by a durable timer."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what asyncio reports as the garbage collector finds it: that is at any time."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore it, as `call_exception_handler` does."""

    def get_exception_handler(self) -> None:
        """Return None: there is none."""

    def get_task_factory(self) -> None:
        """Return None: there is none."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators live as long as the run."""

    # Eviction.

    def unwind(self) -> None:
        """End every coroutine with `EvictedError`; what it does on its way out has no effect."""
        self.evicting = True
        self._ready.clear()
        self.conditions.clear()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.done():
                _throw_out(task.get_coro())
        generators, self._asyncgens = self._asyncgens, []
        for generator in generators:
            _throw_out(generator.athrow(EvictedError()))
        self._timers.clear()


def _leads_to_as_completed(frame: FrameType | None) -> bool:
    """Return whether one of the nearest callers of `frame` is asyncio.as_completed."""
    for _ in range(4):
        if frame is None or frame.f_code is _AS_COMPLETED:
            return frame is not None
        frame = frame.f_back
    return False


def _throw_out(coro: Any) -> None:  # noqa: ANN401 - a coroutine, or what athrow returns
    """Throw into `coro` until it ends; give up on one that swallows it again and again."""
    for _ in range(_REAWAITS_MAX):
        try:
            coro.throw(EvictedError())
        except BaseException:  # noqa: BLE001 - whatever it ended with, it ended
            return
    _abandon(coro)


def _abandon(coro: object) -> None:
    """Keep a coroutine from the garbage collector for ever, also as the process ends.

    If the collector closed it, its `finally` blocks would run at any time and on any thread; and
    one that swallows everything would spin there, since without a loop each await fails at once.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


def running_loop() -> WorkflowLoop | None:
    """Return the workflow loop that this thread runs now, or None outside of workflow code."""
    loop = events._get_running_loop()  # noqa: SLF001 - in its __all__
    return loop if type(loop) is WorkflowLoop else None
