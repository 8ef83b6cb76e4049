"""The event loop that runs one workflow: asyncio's rules, in an order that is the same in every process.

Ready callbacks run first in, first out. Tasks and futures hash by a number that counts up per run, so that the sets in
which asyncio keeps them iterate in the same order everywhere. Time stands still while the loop runs: `time()` is that
of the workflow task. Timers are durable: the host records them, and fires them when the history says so.

What cannot be repeated at replay is refused with the alternative named: threads, sockets, subprocesses.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from contextvars import Context, copy_context
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from odin.core.failures import EvictedError, ForbiddenCallError, WorkflowTaskError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

T = TypeVar("T")

TICKS_MAX: Final = 100_000
CPU_SECONDS_MAX: Final = 2.0
_CHECK_EVERY_TICKS: Final = 64
_REAWAITS_MAX: Final = 100
_DURATION_MS_MAX: Final = 2**53
_ENSURE_FUTURE: Final = asyncio.tasks._ensure_future.__code__  # type: ignore[attr-defined] # noqa: SLF001 - to tell who creates a task
_AS_COMPLETED: Final = asyncio.tasks.as_completed.__code__

# Coroutines that swallowed their eviction again and again. They are kept for ever: if the garbage
# collector closed them, their `finally` blocks would run at any time and on any thread.
_ABANDONED: Final[list[object]] = []


class LoopHost(Protocol):
    """What the loop asks of the run that it belongs to."""

    def start_timer(self, duration_ms: int, summary: str) -> int:
        """Record that a timer is wanted; return its command id."""

    def cancel_timer(self, command_id: int) -> None:
        """Record that the timer is no longer wanted."""

    def check(self, condition: Callable[[], bool]) -> bool:
        """Return whether a condition holds; it may only read."""


class DeterministicFuture(asyncio.Future[T]):
    """A future that hashes by its number inside the run."""

    __slots__ = ("sequence",)

    def __init__(self, loop: WorkflowLoop) -> None:
        self.sequence = loop.next_sequence()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.sequence


class DeterministicTask(asyncio.Task[T]):
    """A task that hashes by its number inside the run."""

    __slots__ = ("sequence",)

    def __init__(
        self,
        sequence: int,
        coro: Coroutine[Any, Any, T],
        loop: WorkflowLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self.sequence = sequence  # before the base class, which puts the task into a set
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.sequence


class _Handle(asyncio.TimerHandle):
    """A callback in the ready queue, or waiting for its timer."""

    __slots__ = ("command_id",)

    def __init__(  # noqa: PLR0913 - asyncio's signature plus the command
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: WorkflowLoop,
        context: Context | None,
        when: float = 0.0,
        command_id: int = 0,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context if context is not None else copy_context()
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.command_id = command_id

    def cancel(self) -> None:
        """Forget the callback; a timer that waits is recorded as canceled."""
        if not self._cancelled:
            self._cancelled = True
            if self.command_id:
                self._loop.forget_timer(self.command_id)


class TimerFuture(DeterministicFuture[None]):
    """What `workflow.sleep` waits for: done when the timer fires."""

    __slots__ = ("command_id",)
    command_id: int

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - asyncio's signature
        """Cancel the wait; the timer is recorded as canceled."""
        if self.done():
            return False
        self.get_loop().forget_timer(self.command_id)  # type: ignore[attr-defined] # always a WorkflowLoop
        return super().cancel(msg)


class WorkflowLoop(asyncio.AbstractEventLoop):
    """One run's loop. It never waits: `drain` runs what is ready and returns.

    Args:
        host: The run; it records timers.
        cpu_time: CPU seconds used by this thread, to enforce the budget of a workflow task.
    """

    def __init__(self, host: LoopHost, cpu_time: Callable[[], float]) -> None:
        self.host = host
        self.evicting = False
        self.stopped = False
        self.fault: BaseException | None = None
        self.now_us = 0
        self.ticks = 0
        self.conditions: list[tuple[Callable[[], bool], DeterministicFuture[None]]] = []
        self._cpu_time = cpu_time
        self._cpu_limit = 0.0
        self._sequence = 0
        self._ready: deque[_Handle] = deque()
        self._timers: dict[int, _Handle | TimerFuture] = {}
        self._tasks: list[DeterministicTask[Any]] = []
        self._tasks_sweep = 64
        self._asyncgens: list[AsyncGenerator[Any, Any]] = []

    # Running.

    def begin(self, now_us: int) -> None:
        """Set the time of the workflow task that begins, and start its budget."""
        self.now_us = now_us
        self.ticks = 0
        self._cpu_limit = self._cpu_time() + CPU_SECONDS_MAX

    def drain(self) -> None:
        """Run what is ready until nothing is, and what waits for conditions as they become true.

        Raises:
            WorkflowTaskError: The budget of the workflow task is used up.
        """
        ready = self._ready
        while True:
            while ready:
                handle = ready.popleft()
                if handle._cancelled:  # noqa: SLF001 - our own class; the base has the name
                    continue
                self.ticks += 1
                if not self.ticks % _CHECK_EVERY_TICKS:
                    self.check_budget()
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined] # noqa: SLF001
                if self.stopped:
                    return
            if not self.conditions or not self._wake_one():
                return

    def _wake_one(self) -> bool:
        """Wake the first wait whose condition holds; only one, so that it still holds when the code goes on."""
        waits = self.conditions
        for index, (condition, future) in enumerate(waits):
            if future.done():
                continue
            try:
                holds = self.host.check(condition)
            except Exception as error:  # noqa: BLE001 - user code: whoever waits gets its error
                future.set_exception(error)
                holds = True
            if holds:
                if not future.done():
                    future.set_result(None)
                del waits[index]
                waits[:] = [wait for wait in waits if not wait[1].done()]
                return True
        waits[:] = [wait for wait in waits if not wait[1].done()]
        return False

    def check_budget(self) -> None:
        """Refuse to go on when the workflow task has used up its budget.

        Raises:
            WorkflowTaskError: It has.
        """
        if self.ticks > TICKS_MAX:
            raise WorkflowTaskError(
                f"the workflow task ran {TICKS_MAX} steps without coming to rest: look for a loop that awaits only"
                " things that are already done, such as `while ...: await asyncio.sleep(0)`; use workflow.wait_condition"
            )
        if self._cpu_time() > self._cpu_limit:
            raise WorkflowTaskError(
                f"the workflow task used more than {CPU_SECONDS_MAX:g} s of CPU time: move the computing into an activity"
            )

    def enter(self) -> tuple[asyncio.AbstractEventLoop | None, Any]:
        """Make this the thread's running loop; give the result to `leave`."""
        outer = (events._get_running_loop(), sys.get_asyncgen_hooks())  # noqa: SLF001 - public by its __all__
        sys.set_asyncgen_hooks(firstiter=self._asyncgens.append, finalizer=None)
        events._set_running_loop(self)  # noqa: SLF001 - public by its __all__
        return outer

    @staticmethod
    def leave(outer: tuple[asyncio.AbstractEventLoop | None, Any]) -> None:
        """Give the thread back the loop that it ran before."""
        events._set_running_loop(outer[0])  # noqa: SLF001 - public by its __all__
        sys.set_asyncgen_hooks(*outer[1])

    def next_sequence(self) -> int:
        """Return the next number of a task or future."""
        self._sequence += 1
        return self._sequence

    # Timers.

    def timer(self, duration_ms: int, summary: str = "") -> TimerFuture:
        """Start a durable timer and return what it resolves."""
        command_id = self.host.start_timer(duration_ms, summary)
        future = TimerFuture(self)
        future.command_id = command_id
        self._timers[command_id] = future
        return future

    def fire(self, command_id: int) -> None:
        """The history says that the timer fired. A timer that was canceled before is ignored."""
        timer = self._timers.pop(command_id, None)
        if isinstance(timer, TimerFuture):
            if not timer.done():
                timer.set_result(None)
        elif timer is not None:
            timer.command_id = 0
            self._ready.append(timer)

    def forget_timer(self, command_id: int) -> None:
        """The code no longer wants the timer."""
        if self._timers.pop(command_id, None) is not None and not self.evicting:
            self.host.cancel_timer(command_id)

    # asyncio's interface.

    def time(self) -> float:
        """Return the workflow task's time in seconds since 1970."""
        return self.now_us / 1_000_000

    def get_debug(self) -> bool:
        """Debug mode is always off: it would change what is run."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Ignore the wish."""

    def is_running(self) -> bool:
        """Whether this thread runs this loop now."""
        return events._get_running_loop() is self  # noqa: SLF001 - public by its __all__

    def is_closed(self) -> bool:
        """Whether the run left the memory."""
        return self.evicting

    def create_future(self) -> DeterministicFuture[Any]:
        """Return a future with a number of its own."""
        return DeterministicFuture(self)

    def create_task(  # type: ignore[override] # the base allows generators
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> DeterministicTask[T]:
        """Return a task with a number of its own; the loop holds it until it is done."""
        if self.evicting:
            coro.close()
            raise EvictedError
        caller = sys._getframe(1)  # noqa: SLF001 - the only way to see who asks
        if caller.f_code is _ENSURE_FUTURE:
            self._refuse_unordered(caller, coro)
        sequence = self.next_sequence()
        task = DeterministicTask(
            sequence, coro, self, str(name) if name else f"Task-{sequence}", context
        )
        if len(self._tasks) >= self._tasks_sweep:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._tasks_sweep = 64 + 2 * len(self._tasks)
        self._tasks.append(task)
        return task

    def _refuse_unordered(self, frame: Any, coro: Coroutine[Any, Any, object]) -> None:  # noqa: ANN401 - a frame
        for _ in range(3):
            frame = frame.f_back
            if frame is None:
                return
            if frame.f_code is _AS_COMPLETED:
                coro.close()
                self.forbid(
                    "asyncio.as_completed with bare coroutines",
                    "it starts them in an order that differs between processes; use workflow.as_completed",
                )

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` after what is ready now."""
        handle = _Handle(callback, args, self, context)
        if not self.evicting:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` when a durable timer of `delay` seconds fires; at once if it is not above 0."""
        if self.evicting:
            raise EvictedError
        duration_ms = duration_ms_of(delay)
        handle = _Handle(callback, args, self, context, self.time() + delay)
        if duration_ms <= 0:
            self._ready.append(handle)
        else:
            handle.command_id = self.host.start_timer(duration_ms, "")
            self._timers[handle.command_id] = handle
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when` seconds since 1970, by a durable timer."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what asyncio tells when the garbage collector finds something: it comes at any time."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore it, as `call_exception_handler` does."""

    def get_exception_handler(self) -> None:
        """There is none."""

    def get_task_factory(self) -> None:
        """There is none; some libraries ask."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators live as long as the run."""

    # What cannot be repeated.

    def forbid(self, what: str, why: str) -> NoReturn:
        """Fail the workflow task for a call that cannot be repeated, even if the code catches the error.

        Raises:
            ForbiddenCallError: Always.
        """
        error = ForbiddenCallError(f"{what} cannot be used in a workflow: {why}")
        if self.fault is None:
            self.fault = error
        raise error

    # Eviction.

    def unwind(self) -> None:
        """End every coroutine with `EvictedError`; nothing of what it does on its way out has an effect."""
        self.evicting = True
        self._ready.clear()
        self.conditions.clear()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.done():
                _throw_out(task.get_coro())
        asyncgens, self._asyncgens = self._asyncgens, []
        for agen in asyncgens:
            if agen.ag_frame is not None:
                _throw_out(agen.athrow(EvictedError()))
        self._timers.clear()


def _throw_out(coro: Any) -> None:  # noqa: ANN401 - a coroutine, or what athrow returns
    """Throw into `coro` until it ends; give up on one that swallows it for ever."""
    for _ in range(_REAWAITS_MAX):
        try:
            coro.throw(EvictedError())
        except BaseException:  # noqa: BLE001 - whatever it ends with, it ended
            return
    _ABANDONED.append(coro)


def duration_ms_of(seconds: float) -> int:
    """Return a delay as whole milliseconds, rounded up, so that no timer is early.

    Raises:
        ValueError: It is not a finite number, or no sensible span of time.
    """
    if not isfinite(seconds):
        raise ValueError(f"a delay is a finite number of seconds, got {seconds!r}")
    # Times since 1970 as floats are exact to a quarter of a microsecond only: asyncio.timeout(5)
    # must not become 5001 ms.
    duration_ms = ceil(round(seconds * 1_000, 2))
    if duration_ms > _DURATION_MS_MAX:
        raise ValueError(f"a delay of {seconds!r} s is beyond all reason")
    return duration_ms


def _forbidden(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: WorkflowLoop, *_args: object, **_kwargs: object) -> NoReturn:
        self.forbid(f"loop.{name}", why)

    refuse.__name__ = name
    refuse.__doc__ = f"Refuse: {why}."
    return refuse


_THREADS = (
    "its outcome is not recorded; do the work in an activity and await workflow.execute_activity"
)
_LOOP_IS_ODINS = "odin runs the loop; await the coroutine instead"
_FORBIDDEN = {
    "run_in_executor": _THREADS,
    "set_default_executor": _THREADS,
    "call_soon_threadsafe": "no other thread may touch a workflow; send it a signal",
    "run_forever": _LOOP_IS_ODINS,
    "run_until_complete": _LOOP_IS_ODINS,
    "stop": _LOOP_IS_ODINS,
    "close": _LOOP_IS_ODINS,
    "shutdown_default_executor": _LOOP_IS_ODINS,
    "set_task_factory": "tasks are made so that their order is the same everywhere",
    "set_exception_handler": "an error of a workflow is raised to whoever awaits it",
    "add_signal_handler": "signals of the process are not recorded; use workflow.signal",
    "remove_signal_handler": "signals of the process are not recorded; use workflow.signal",
} | {
    name: "I/O belongs into an activity; await workflow.execute_activity"
    for name in (
        "getaddrinfo",
        "getnameinfo",
        "create_connection",
        "create_server",
        "start_tls",
        "sendfile",
        "create_unix_connection",
        "create_unix_server",
        "connect_accepted_socket",
        "create_datagram_endpoint",
        "connect_read_pipe",
        "connect_write_pipe",
        "subprocess_shell",
        "subprocess_exec",
        "add_reader",
        "remove_reader",
        "add_writer",
        "remove_writer",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_recvfrom_into",
        "sock_sendall",
        "sock_sendto",
        "sock_connect",
        "sock_accept",
        "sock_sendfile",
    )
}
for _name, _why in _FORBIDDEN.items():
    setattr(WorkflowLoop, _name, _forbidden(_name, _why))


def running_loop() -> WorkflowLoop | None:
    """Return the workflow loop that this thread runs now, or None outside of workflow code."""
    loop = events._get_running_loop()  # noqa: SLF001 - public by its __all__
    return loop if type(loop) is WorkflowLoop else None
