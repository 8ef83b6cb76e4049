"""The parts of the simulation's loop: handles, tasks, futures, simulated processes, errors."""

from __future__ import annotations

import asyncio
import sys
from asyncio import events, tasks
from collections import deque
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple, cast
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from types import AsyncGeneratorType

    from .loop import SimLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_REAWAITS_MAX: Final = 100
ASKS_NO_KERNEL: Final = sys.version_info >= (3, 12)
"""Whether asyncio finds the running loop without a system call, and has its newer names."""


class SimulationError(Exception):
    """The simulation cannot go on."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer waits."""


class VirtualTimeoutError(SimulationError):
    """The virtual time is up."""


class StepLimitError(SimulationError):
    """Too many steps: an endless loop, most likely."""


class UnhandledError(SimulationError):
    """A callback raised, and nobody was there to take it."""

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__(context.get("message"))
        self.__cause__ = context.get("exception")


class RealWorldError(SimulationError):
    """Code under simulation asked for real time, dice, threads or I/O."""


class Process:
    """A simulated process: a node, a worker, a client, the database.

    Everything that is begun by `create_task`, `call_soon` or `call_later`, and whatever that begins
    in its turn, belongs to it. What another process hands to it (a message, an answer) must be
    handed through these too, or through a future that it awaits.

    Attributes:
        name: For traces and deaths.
        is_held: Whether nothing of it may run now: it is frozen or dead.
        on_end: Called, outside of the process, as it is killed: to cut its connections.
    """

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.is_held = False
        self.on_end: list[Callable[[], None]] = []
        self._held: deque[SimHandle] = deque()
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def create_task(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine inside the process."""
        return self.loop.create_task(coro, name=name, context=self._context.copy())

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts) -> asyncio.Handle:
        """Run `callback` inside the process."""
        return self.loop.call_soon(callback, *args, context=self._context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Run `callback` inside the process after `delay` virtual seconds."""
        return self.loop.call_later(delay, callback, *args, context=self._context)

    def kill(self) -> None:
        """End the process at once: nothing of it runs any more."""
        if not self.is_alive:
            return
        self.loop.note(f"kill {self.name}")
        self.is_alive = False
        self.is_held = True
        self._held.clear()
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            callback()

    def freeze(self) -> None:
        """Stop the process where it is: what it should do waits for `thaw`."""
        self.loop.note(f"freeze {self.name}")
        self.is_frozen = self.is_held = True

    def thaw(self) -> None:
        """Let the process go on with everything that has become due meanwhile, in its order."""
        self.loop.note(f"thaw {self.name}")
        self.is_frozen = False
        self.is_held = not self.is_alive
        while self._held:
            self.loop.requeue(self._held.popleft())

    def hold(self, handle: SimHandle) -> None:
        """Take what must not run now: a frozen process keeps it, a dead one has no use for it."""
        if self.is_alive:
            self._held.append(handle)


PROCESS: Final[ContextVar[Process | None]] = ContextVar("simulated process", default=None)
"""The simulated process that runs now; None for the test itself."""


class InOrder:
    """Callbacks that are called in the order in which they were given, each after its own delay.

    What a stream (a link, a connection) needs: jitter without overtaking.
    """

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._newest = 0.0

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        """Call after `delay` seconds, and not before what was given before."""
        self._newest = max(self._newest, self._loop.now + delay)
        self._waiting.append(callback)
        self._loop.call_at(self._newest, self._next, context=Context())

    def _next(self) -> None:
        # Ties of timers are shuffled, so each timer delivers whatever is first in line.
        self._waiting.popleft()()


class SimFuture(asyncio.Future[T]):
    """A future that hashes by a number, so that sets of futures have one order.

    Few are ever put into a set, so the number is drawn when it is first asked for.
    """

    __slots__ = ("sequence",)

    def __hash__(self) -> int:
        try:
            return self.sequence
        except AttributeError:
            self.sequence: int = cast("SimLoop", self.get_loop()).next_sequence()
            return self.sequence


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number, so that sets of tasks have one order."""

    __slots__ = ("sequence",)

    sequence: int

    def __hash__(self) -> int:
        return self.sequence

    def quiet(self) -> None:
        """Let nobody complain that it was left behind."""
        self._log_destroy_pending = False


class SimHandle(msgspec.Struct, eq=False):
    """A callback in the queue or waiting for its time: what is used of asyncio's own handles.

    Twelve thousand are made for a seed: a struct is made three times as fast as an object.

    Attributes:
        at: The virtual instant.
        callback: None once it is cancelled.
    """

    at: float
    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        """Forget the callback."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Return whether it is forgotten."""
        return self.callback is None

    def when(self) -> float:
        """Return the virtual instant."""
        return self.at


def label_of(handle: SimHandle) -> str:
    """Return who is about to run: a task's name, or a function's, and its process."""
    callback, process = handle.callback, handle.context.get(PROCESS)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, SimTask):
        label = owner.get_name()
    else:
        label = getattr(callback, "__qualname__", type(callback).__name__)
    return label if process is None else f"{process.name}: {label}"


class _Marks(dict[str, int]):
    def __missing__(self, name: str) -> int:
        mark = self[name] = crc32(name.encode())
        return mark


MARKS: Final = _Marks()
"""A number for each function's name, the same in every process."""


def drop(coroutines: Iterable[Any], generators: Iterable[AsyncGeneratorType[Any, Any]]) -> None:
    """Close coroutines and generators, whatever they do about it, without a word."""
    outer, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    try:
        for coroutine in coroutines:
            _end(coroutine.close)
        for generator in generators:
            if generator.ag_frame is not None:
                _end(generator.aclose().close)
    finally:
        sys.unraisablehook = outer


def _end(close: Callable[[], object]) -> None:
    for _ in range(_REAWAITS_MAX):
        try:
            close()
        except RuntimeError:
            continue  # it awaited something instead of ending
        except BaseException:  # noqa: BLE001 - whatever it ended with (a group, too), it ended
            return
        return


@contextmanager
def found_without_asking(loop: SimLoop) -> Iterator[None]:
    """Have Python code find the running loop without a word to the kernel.

    Before Python 3.12 asyncio compares the number of the process each time, thousands of times a
    seed, and where system calls are dear that is an eighth of a simulation. Since then it does not,
    and is left as it is.
    """
    running: list[object] = [loop]
    tell = events._set_running_loop  # noqa: SLF001 - in its __all__

    def find() -> object:
        return running[0]

    def change(inner: Any) -> None:  # noqa: ANN401 - a loop, of a workflow perhaps
        running[0] = inner
        tell(inner)

    found = {"get_running_loop": find, "_get_running_loop": find, "_set_running_loop": change}
    if ASKS_NO_KERNEL:
        found.clear()
    seams = [(module, name, new) for module in (asyncio, events) for name, new in found.items()]
    # Nobody asks for all tasks, and what remembers them costs as much as a task's creation.
    known: Any = getattr(tasks, "_scheduled_tasks" if ASKS_NO_KERNEL else "_all_tasks")
    known.add = lambda _task: None
    before = [getattr(module, name) for module, name, _ in seams]
    try:
        for module, name, new in seams:
            setattr(module, name, new)
        yield
    finally:
        del known.add
        for (module, name, _), old in zip(seams, before, strict=True):
            setattr(module, name, old)


REACHING_OUT: Final = [
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "remove_reader",
    "remove_signal_handler",
    "remove_writer",
    "run_forever",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
]
"""What an event loop has for the world outside, and a simulated one refuses."""


def refusal(name: str) -> Callable[..., NoReturn]:
    """Return a method that says that `loop.<name>` is not to be had."""

    def refuse(_self: SimLoop, *_args: object, **_kwargs: object) -> NoReturn:
        raise RealWorldError(f"loop.{name} reaches out of the simulation")

    refuse.__name__ = name
    return refuse
