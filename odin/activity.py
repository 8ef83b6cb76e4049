"""Activities: ordinary functions that do what a workflow must not: I/O, waiting, any effect.

    @activity.defn
    async def charge(order: Order) -> Receipt:
        return await payments.charge(order, key=activity.info().idempotency_key)

An activity runs at least once; its idempotency key is the same for every attempt. Whatever it
returns is written down once. Async functions run on the worker's event loop, plain ones in its
threads.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from odin.core.definition import ACTIVITY_NAME_ATTRIBUTE, DefinitionError
from odin.core.door import DETAILS_BYTES_MAX, why_too_large
from odin.core.failures import ApplicationError, CancelledError
from odin.core.ids import check_id
from odin.core.payload import Payload, decode, encode_all
from odin.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = [
    "ApplicationError",
    "CancelledError",
    "Info",
    "defn",
    "heartbeat",
    "in_activity",
    "info",
    "is_cancelled",
    "logger",
    "name_of",
    "wait_for_cancelled",
    "wait_for_cancelled_sync",
]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Info:
    """What an attempt may know of itself.

    Attributes:
        attempt: Counted from 1.
        idempotency_key: The same for all attempts of this activity, and for no other.
        deadline: When the engine gives the attempt up, by the cluster's clock; None: never.
        heartbeat_timeout: The longest silence between heartbeats; None: any.
        started_time: When this attempt began, by the cluster's clock.
    """

    activity_id: str
    activity_type: str
    attempt: int
    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    scheduled_time: datetime
    started_time: datetime
    deadline: datetime | None
    start_to_close_timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    idempotency_key: str
    raw_heartbeat_details: tuple[Payload, ...] = ()

    @property
    def heartbeat_details(self) -> Sequence[Any]:
        """What the attempt before this one reported last."""
        return [decode(payload) for payload in self.raw_heartbeat_details]

    @property
    def workflow_run_id(self) -> str:
        """The run id, under the name that users of temporalio know."""
        return self.run_id

    @property
    def workflow_namespace(self) -> str:
        """The namespace, under the name that users of temporalio know."""
        return self.namespace


class Context:
    """The running attempt. For the worker and for tests; authors use the functions.

    Args:
        info: What the attempt may know of itself, or how to make it when it is asked for.
        beat: Takes the details of a heartbeat; called from the activity's own thread.
    """

    __slots__ = ("_beat", "_event", "_info", "_waiting", "cancel_reason", "cancelled")

    def __init__(
        self, info: Info | Callable[[], Info], beat: Callable[[tuple[Payload, ...]], None]
    ) -> None:
        self._info = info
        self._beat = beat
        self._event: threading.Event | None = None
        self._waiting: asyncio.Event | None = None
        self.cancelled = False
        self.cancel_reason = ""

    @property
    def info(self) -> Info:
        """What the attempt may know of itself."""
        if not isinstance(self._info, Info):
            self._info = self._info()
        return self._info

    def beat(self, details: tuple[Payload, ...]) -> None:
        """Take a heartbeat."""
        self._beat(details)

    def cancel(self, reason: str) -> None:
        """Tell the activity to stop. Called on the event loop."""
        if self.cancelled:
            return
        self.cancel_reason = reason
        self.cancelled = True  # before the events are looked for: who makes one looks here after
        if self._event is not None:
            self._event.set()
        if self._waiting is not None:
            self._waiting.set()

    def event(self) -> threading.Event:
        """Return what a thread waits for."""
        if self._event is None:
            self._event = threading.Event()
        if self.cancelled:
            self._event.set()
        return self._event

    def waiting(self) -> asyncio.Event:
        """Return what a coroutine waits for."""
        if self._waiting is None:
            self._waiting = asyncio.Event()
        if self.cancelled:
            self._waiting.set()
        return self._waiting


current: ContextVar[Context] = ContextVar("odin_activity")


@overload
def defn(fn: F) -> F: ...
@overload
def defn(*, name: str | None = None) -> Callable[[F], F]: ...
def defn(fn: F | None = None, *, name: str | None = None) -> F | Callable[[F], F]:
    """Declare a function, or an object that can be called, to be an activity.

    Args:
        fn: The function.
        name: The activity type; the function's name when None.

    Raises:
        DefinitionError: It cannot be called.
        InvalidArgumentError: The name is not an id.
    """

    def decorate(target: F) -> F:
        if isinstance(target, type):
            raise DefinitionError(
                f"{target!r} is a class; an activity is a function, or an object that can be called"
            )
        if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
            raise DefinitionError(f"{target!r} is a generator: an activity returns one value")
        chosen = name or getattr(target, "__name__", type(target).__name__)
        setattr(target, ACTIVITY_NAME_ATTRIBUTE, check_id(chosen, "activity name"))
        return target

    return decorate if fn is None else decorate(fn)


def name_of(fn: Callable[..., Any]) -> str:
    """Return the activity type of a decorated function or bound method.

    Raises:
        DefinitionError: It is not decorated.
    """
    found = getattr(fn, ACTIVITY_NAME_ATTRIBUTE, None)
    if not isinstance(found, str):
        shown = getattr(fn, "__qualname__", repr(fn))
        raise DefinitionError(f"{shown} is not an activity: decorate it with @activity.defn")
    return found


def in_activity() -> bool:
    """Return whether the caller runs inside an activity."""
    return current.get(None) is not None


def info() -> Info:
    """Return what this attempt may know of itself.

    Raises:
        RuntimeError: The caller is not inside an activity.
    """
    return _context().info


def heartbeat(*details: object) -> None:
    """Say that the attempt is alive, and how far it is; the next one is given the newest details.

    Cheap: heartbeats are sent at most every 0.8 of the heartbeat timeout.

    Raises:
        PayloadError: A detail cannot be encoded, or all together are more than 256 KiB.
        RuntimeError: The caller is not inside an activity.
    """
    encoded = encode_all(details, "heartbeat detail")
    why = why_too_large(encoded, "heartbeat detail", DETAILS_BYTES_MAX)
    if why is not None:
        raise PayloadError(why, reason="PAYLOAD_TOO_LARGE")
    _context().beat(encoded)


def is_cancelled() -> bool:
    """Return whether the attempt should stop. Async ones get asyncio.CancelledError besides."""
    return _context().cancelled


async def wait_for_cancelled() -> None:
    """Return once the attempt should stop."""
    await _context().waiting().wait()


def wait_for_cancelled_sync(timeout: timedelta | float | None = None) -> bool:
    """Wait in a plain function until the attempt should stop, at most `timeout` (seconds).

    Returns:
        Whether it should stop.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    return _context().event().wait(seconds)


def _context() -> Context:
    context = current.get(None)
    if context is None:
        raise RuntimeError("not inside an activity")
    return context


def instant(us: int) -> datetime:
    """Return microseconds since 1970 as a UTC datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Adds the attempt's identifiers to every record."""

    def process(
        self,
        msg: Any,  # noqa: ANN401 - as in the base class
        kwargs: MutableMapping[str, Any],
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the identifiers beside the caller's own fields."""
        context = current.get(None)
        if context is not None:
            about = context.info
            own = {
                "activity_type": about.activity_type,
                "activity_id": about.activity_id,
                "attempt": about.attempt,
                "workflow_id": about.workflow_id,
                "run_id": about.run_id,
            }
            kwargs["extra"] = {**own, **(kwargs.get("extra") or {})}
        return msg, kwargs


logger = _Logger(logging.getLogger(__name__), {})
