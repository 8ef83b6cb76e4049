"""An event loop without a selector, threads or a real clock: the ground of the simulation.

Ready callbacks run first in, first out, like asyncio's own. Time is virtual: it stands still while
anything is ready, then jumps to the next timer. Timers that are due at the same instant run in a
seeded order, because asyncio promises none. Tasks and futures hash by a number, so that the sets in
which asyncio keeps them iterate alike in every process.

A `Process` is a simulated process of the operating system: what is scheduled inside of it runs only
while it lives, waits while it is frozen, and never runs again once it is killed. No `finally` of a
killed process has an effect, as with `kill -9`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import events
from collections import deque
from contextvars import Context, copy_context
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple, cast
from zlib import crc32

from .loop_parts import (
    MARKS,
    PROCESS,
    REACHING_OUT,
    DeadlockError,
    Process,
    RealWorldError,
    SimFuture,
    SimHandle,
    SimTask,
    StepLimitError,
    UnhandledError,
    VirtualTimeoutError,
    drop,
    found_without_asking,
    label_of,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import AsyncGeneratorType

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_SECONDS: Final = 1_000.0
_SWEPT_AT: Final = 256
_MASK: Final = (1 << 61) - 1
_new_task: Final[Any] = asyncio.Task.__new__
_begin_task: Final = asyncio.Task.__init__


class SimLoop(asyncio.BaseEventLoop):
    """One thread, one queue, one heap of timers, and dice.

    Args:
        seed: Decides the order of timers that are due at the same instant.
        shuffle_ties: False runs them in the order in which they were made.
        steps_max: Callbacks in all before the run is given up.
        instant_steps_max: Callbacks at one instant before it is taken for an endless loop.

    Attributes:
        now: Virtual seconds; begins at 1000, so that no code mistakes 0 for a time.
        steps: Callbacks run so far.
        dice: The loop's own; parts of the simulation make theirs with `dice_for`.
        unhandled: Errors of callbacks; the first one ends `run_until`.
        reported: What asyncio found through the garbage collector, at no repeatable time.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        shuffle_ties: bool = True,
        steps_max: int = 1_000_000,
        instant_steps_max: int = 200_000,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.now = START_SECONDS
        self.steps = 0
        self.steps_max = steps_max
        self.instant_steps_max = instant_steps_max
        self.dice = self.dice_for("loop")
        self._tie = self.dice.random if shuffle_ties else float
        self.unhandled: list[dict[str, Any]] = []
        self.reported: list[dict[str, Any]] = []
        self.trace_lines: list[str] | None = None
        self._trace = 0
        self._marks: list[float] = []
        self._queue: deque[SimHandle] = deque()
        self._timers: list[tuple[float, float, int, SimHandle]] = []
        self._sequence = 0
        self._tasks: list[SimTask[Any]] = []
        self._sweep_at = _SWEPT_AT
        self._asyncgens_held: list[AsyncGeneratorType[Any, Any]] = []
        self._asyncgens_sweep_at = _SWEPT_AT
        self._thread = threading.get_ident()

    # --- seeds and traces -------------------------------------------------------------------------

    def dice_for(self, name: str) -> Random:
        """Return dice of their own for a part: drawing from them moves nobody else's."""
        return Random(f"{self.seed}/{name}")  # noqa: S311 - repeatable on purpose

    @property
    def trace_hash(self) -> int:
        """A running check over every step, its time and its task, and over what was noted."""
        self._fold()
        return self._trace & _MASK

    def _fold(self) -> None:
        """Take the marks of the steps since the last time into the hash, all at once."""
        self._trace = hash((self._trace, *self._marks))
        self._marks.clear()

    def note(self, text: str) -> None:
        """Put something that must be the same in every run of the seed into the trace."""
        self._fold()
        self._trace = hash((self._trace, crc32(f"{self.now!r} {text}".encode())))
        if self.trace_lines is not None:
            self.trace_lines.append(f"{self.now:.6f} {text}")

    # --- running ----------------------------------------------------------------------------------

    def run_until(self, main: Coroutine[Any, Any, T], limit_seconds: float = 3_600.0) -> T:
        """Run `main` to its end, and with it whatever else is scheduled, and return its result.

        Raises:
            VirtualTimeoutError: `main` has not ended within `limit_seconds` of virtual time.
            DeadlockError: Nothing is ready, no timer waits, and `main` has not ended.
            StepLimitError: Too many callbacks in all, or at one instant.
            UnhandledError: A callback raised.
        """
        hooks = sys.get_asyncgen_hooks()
        if events._get_running_loop() is not None:  # noqa: SLF001 - in its __all__
            raise RuntimeError("a simulation inside a running event loop")
        events._set_running_loop(self)  # noqa: SLF001 - in its __all__
        sys.set_asyncgen_hooks(firstiter=self._hold, finalizer=None)
        try:
            with found_without_asking(self):
                task = self.create_task(main, name="main")
                self._run(task, self.now + limit_seconds)
                return task.result()
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - in its __all__
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401 - asyncio's signature
        """Run a coroutine to its end, an hour of virtual time at most."""
        return self.run_until(future)

    def _run(self, main: asyncio.Task[Any], limit: float) -> None:
        is_done, queue, marks = main.done, self._queue, self._marks
        take, mark, instant_steps = queue.popleft, marks.append, 0
        while not is_done():
            if not queue:
                self.steps += instant_steps
                self._advance(limit)
                instant_steps = 0
                continue
            handle = take()
            callback, context = handle.callback, handle.context
            process = context.get(PROCESS)
            if callback is None or (process is not None and process.is_held):
                if callback is not None and process is not None:
                    process.hold(handle)
                continue
            instant_steps += 1
            owner = getattr(callback, "__self__", None)
            mark(
                owner.sequence
                if type(owner) is SimTask
                else MARKS[getattr(callback, "__qualname__", "")]
            )
            if self.trace_lines is not None:
                self.trace_lines.append(f"{self.now:.6f} . {label_of(handle)}")
            try:
                context.run(callback, *handle.args)
            except Exception as error:  # noqa: BLE001 - the run ends with it
                self._failed(handle, error)
            if self.unhandled or instant_steps > self.instant_steps_max:
                self.steps += instant_steps
                self._give_up(handle)
        self.steps += instant_steps

    def _failed(self, handle: SimHandle, error: Exception) -> None:
        message = f"error in {label_of(handle)}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _give_up(self, handle: SimHandle) -> NoReturn:
        if self.unhandled:
            raise UnhandledError(self.unhandled[0])
        raise StepLimitError(f"{self.steps} steps at {self.now:.6f} s, last: {label_of(handle)}")

    def _advance(self, limit: float) -> None:
        """Jump to the next timer, and make ready whatever is due then."""
        timers, queue = self._timers, self._queue
        while timers and timers[0][3].callback is None:
            heappop(timers)
        if not timers:
            raise DeadlockError([str(task) for task in self.tasks()])
        when = timers[0][0]
        if when > limit:
            self.now = limit
            raise VirtualTimeoutError([str(task) for task in self.tasks()])
        if self.steps > self.steps_max:
            raise StepLimitError(f"{self.steps} steps at {self.now:.6f} s")
        now = self.now = max(self.now, when)
        self._marks.append(now)
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[3]
            if handle.callback is not None:
                queue.append(handle)

    def tasks(self) -> list[SimTask[Any]]:
        """Return the tasks that are not done, in the order in which they were made."""
        return [task for task in self._tasks if not task.done()]

    # --- scheduling -------------------------------------------------------------------------------

    def next_sequence(self) -> int:
        """Return the next number of a task, a future or a timer."""
        self._sequence += 1
        return self._sequence

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` after what is ready now."""
        if context is None:
            context = copy_context()
        handle = SimHandle(self.now, callback, args, context)
        self._queue.append(handle)
        return handle  # type: ignore[return-value] # it has what is used of one

    def requeue(self, handle: SimHandle) -> None:
        """Run a handle that a frozen process had held back."""
        self._queue.append(handle)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` soon; only the simulation's own thread may ask."""
        if threading.get_ident() != self._thread:
            raise RealWorldError("another thread called into the simulation")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` virtual seconds."""
        if context is None:
            context = copy_context()
        number = self._sequence = self._sequence + 1
        when = self.now + delay
        handle = SimHandle(when, callback, args, context)
        heappush(self._timers, (when, self._tie(), number, handle))
        return handle  # type: ignore[return-value] # it has what is used of one

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at the virtual instant `when`."""
        if context is None:
            context = copy_context()
        number = self._sequence = self._sequence + 1
        handle = SimHandle(when, callback, args, context)
        heappush(self._timers, (when, self._tie(), number, handle))
        return handle  # type: ignore[return-value] # it has what is used of one

    def create_future(self) -> SimFuture[Any]:
        """Return a future with a number of its own."""
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override] # the base takes generators, too
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> SimTask[T]:
        """Return a task with a number of its own; the loop holds it until it is done."""
        sequence = self.next_sequence()
        known_as = f"Task-{sequence}" if name is None else str(name)
        task: SimTask[T] = _new_task(SimTask)
        task.sequence = sequence  # before the base class, which puts the task into a set
        _begin_task(task, coro, loop=self, name=known_as, context=context)
        if len(self._tasks) >= self._sweep_at:
            self._tasks = self.tasks()
            self._sweep_at = _SWEPT_AT + 2 * len(self._tasks)
        self._tasks.append(task)
        return task

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 - asyncio's signature
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run `func` inline, as one step of the loop: no thread is ever started."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the caller's to deal with
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_soon(work)
        return future

    # --- asyncio's interface ----------------------------------------------------------------------

    def time(self) -> float:
        """Return virtual seconds."""
        return self.now

    # Debug mode reads real clocks. Every future asks: `bool()` is False and no call of Python's.
    get_debug = staticmethod(bool)

    def set_debug(self, enabled: bool) -> None:  # noqa: ARG002, FBT001 - asyncio's signature
        """Ignore the wish."""
        super().set_debug(False)

    def is_running(self) -> bool:
        """Return whether this thread runs this loop now."""
        return events._get_running_loop() is self  # noqa: SLF001 - in its __all__

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong: errors of callbacks end the run, late finds do not."""
        if "handle" in context:
            self.unhandled.append(context)
        else:
            self.reported.append(context)

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: `close` ends the generators."""

    def close(self) -> None:
        """End every coroutine that is left; what they do on their way out has no effect."""
        self._queue = deque(maxlen=0)
        tasks, self._tasks = self.tasks(), []
        generators, self._asyncgens_held = self._asyncgens_held, []
        events._set_running_loop(self)  # noqa: SLF001 - in its __all__
        try:
            drop([task.get_coro() for task in tasks], generators)
            for task in tasks:
                task.quiet()
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - in its __all__
        self._timers.clear()
        super().close()

    def _hold(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold a generator until it is done: the garbage collector would end it at any time."""
        held = self._asyncgens_held
        if len(held) >= self._asyncgens_sweep_at:
            held = self._asyncgens_held = [one for one in held if one.ag_frame is not None]
            self._asyncgens_sweep_at = _SWEPT_AT + 2 * len(held)
        held.append(cast("AsyncGeneratorType[Any, Any]", generator))


for _name in REACHING_OUT:
    setattr(SimLoop, _name, refusal(_name))

__all__ = [
    "PROCESS",
    "START_SECONDS",
    "DeadlockError",
    "Process",
    "RealWorldError",
    "SimLoop",
    "StepLimitError",
    "UnhandledError",
    "VirtualTimeoutError",
]
