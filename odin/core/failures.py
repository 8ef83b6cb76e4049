"""What a workflow's author meets when something fails, and how that is written down.

FailureError                    fails the workflow when it escapes `run`
├── ApplicationError            raised by activities and workflows
├── ActivityError               an activity ended without a result; `cause` says why
├── TimeoutError                a time limit passed; `type` says which
├── CancelledError              what was waited for had been cancelled
└── TerminatedError             somebody ended the run; no code of it ran
WorkflowTaskError               fails the workflow *task*: the run waits for better code
├── NondeterminismError         the code no longer fits the history
└── ForbiddenCallError          a call that cannot be repeated at replay
ContinueAsNewError              internal: how `workflow.continue_as_new` leaves the code
EvictedError                    internal: unwinds a run that leaves the memory
"""

from __future__ import annotations

import builtins
import traceback
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from odin.core.door import fit_details
from odin.core.payload import (
    STACK_CHARS_MAX,
    Failure,
    Payload,
    clean_text,
    decode,
    encode_all,
)
from odin.errors import Code, OdinError, PayloadError

if TYPE_CHECKING:
    from odin.core.commands import ContinueAsNew

_CAUSES_MAX = 16
_TYPE_CHARS_MAX = 200


class TimeoutType(StrEnum):
    """Which time limit passed."""

    SCHEDULE_TO_START = "schedule_to_start"
    START_TO_CLOSE = "start_to_close"
    SCHEDULE_TO_CLOSE = "schedule_to_close"
    HEARTBEAT = "heartbeat"


class FailureError(Exception):
    """Base of the failures that fail a workflow.

    Args:
        message: What happened.
        failure: How it is written down, when it came from a history.
    """

    def __init__(self, message: str, *, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.failure = failure

    @property
    def cause(self) -> BaseException | None:
        """What it came from."""
        return self.__cause__


class ApplicationError(FailureError):
    """A failure of the application, raised by an activity or a workflow.

    Args:
        message: What happened.
        details: Values for whoever handles it; they are encoded like arguments.
        type: The name by which retry policies and callers know it; the class name when None.
        non_retryable: Whether an activity that fails so must not be tried again.
        next_retry_delay: How long to wait before the next attempt, in place of the policy's wait.
    """

    def __init__(
        self,
        message: str,
        *details: object,
        type: str | None = None,  # noqa: A002 - the keyword that users know
        non_retryable: bool = False,
        next_retry_delay: timedelta | None = None,
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message, failure=failure)
        self.details = details
        self.type = type or self.__class__.__name__
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.type != "ApplicationError" else self.message


class ActivityError(FailureError):
    """An activity ended without a result. `cause` is the failure of its last attempt.

    Args:
        message: What happened.
        activity_type: Which activity it was.
        activity_id: Its id inside the run.
        retry_state: Why it was not tried again: non_retryable, max_attempts or timeout.
    """

    def __init__(
        self,
        message: str,
        *,
        activity_type: str = "",
        activity_id: str = "",
        retry_state: str = "",
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message, failure=failure)
        self.activity_type = activity_type
        self.activity_id = activity_id
        self.retry_state = retry_state


class TimeoutError(FailureError):  # noqa: A001 - the name that users know
    """A time limit passed.

    Args:
        message: What happened.
        type: Which limit, when that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        type: TimeoutType | None = None,  # noqa: A002 - the keyword that users know
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message, failure=failure)
        self.type = type


class CancelledError(FailureError):
    """What was waited for had been cancelled, by somebody else than the code that waited."""

    def __init__(
        self, message: str = "cancelled", *details: object, failure: Failure | None = None
    ) -> None:
        super().__init__(message, failure=failure)
        self.details = details


class TerminatedError(FailureError):
    """Somebody ended the run; no code of it ran."""


class WorkflowTaskError(OdinError):
    """The workflow task failed. The run stays open and waits, visibly, for better code.

    `failure` is what is reported to the owner; its `source` is the line to look at.
    """

    code = Code.FAILED_PRECONDITION
    reason = "WORKFLOW_TASK_FAILED"

    def __init__(self, message: str, failure: Failure | None = None, *, source: str = "") -> None:
        super().__init__(message)
        self.failure = failure or Failure(
            clean_text(message), "worker", type(self).__name__, source=source
        )


class NondeterminismError(WorkflowTaskError):
    """The code asks for something else than the history recorded."""

    reason = "NONDETERMINISM"


class ForbiddenCallError(WorkflowTaskError):
    """The workflow's code made a call whose outcome would be another one at replay."""

    reason = "FORBIDDEN_CALL"


class ContinueAsNewError(BaseException):
    """How `workflow.continue_as_new` leaves the code; `except Exception` does not stop it."""

    def __init__(self, command: ContinueAsNew) -> None:
        super().__init__("continue as new")
        self.command = command


class EvictedError(BaseException):
    """Unwinds a run that leaves the memory. Code must let it pass."""


_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (ActivityError, "activity"),
    (TimeoutError, "timeout"),
    (builtins.TimeoutError, "timeout"),
    (CancelledError, "canceled"),
    (TerminatedError, "terminated"),
)


def failure_of(error: BaseException, *, trace: bool = True, _depth: int = 0) -> Failure:
    """Return how `error` is written down, its causes included.

    Args:
        error: Any exception; one of no failure type becomes an application failure of its name.
        trace: Whether the stack is written down too.
    """
    kind = next((kind for cls, kind in _KINDS if isinstance(error, cls)), "application")
    name = type(error).__name__
    details: tuple[object, ...] = ()
    non_retryable, delay_ms, timeout_type = False, None, ""
    if isinstance(error, ApplicationError):
        name, details, non_retryable = error.type, error.details, error.non_retryable
        if error.next_retry_delay is not None:
            delay_ms = max(0, round(error.next_retry_delay.total_seconds() * 1_000))
    elif isinstance(error, ActivityError):
        name = error.activity_type
    elif isinstance(error, TimeoutError):
        timeout_type = error.type or ""
    elif isinstance(error, CancelledError):
        details = error.details
    elif name == "CancelledError":  # asyncio's own
        kind = "canceled"
    cause = error.__cause__ if _depth < _CAUSES_MAX else None
    return Failure(
        clean_text(_message(error)),
        kind,
        clean_text(name, _TYPE_CHARS_MAX),
        non_retryable=non_retryable,
        next_retry_delay_ms=delay_ms,
        details=_encode(details) if details else (),
        stack_trace=_stack(error.__traceback__) if trace else "",
        timeout_type=timeout_type,
        cause=None if cause is None else failure_of(cause, trace=trace, _depth=_depth + 1),
    )


def error_of(failure: Failure) -> FailureError:
    """Return the exception that user code sees for `failure`, its cause included."""
    message, delay_ms = failure.message, failure.next_retry_delay_ms
    error: FailureError
    match failure.kind:
        case "activity":
            error = ActivityError(message, activity_type=failure.type, failure=failure)
        case "timeout":
            error = TimeoutError(message, type=_timeout_type(failure.timeout_type), failure=failure)
        case "canceled":
            error = CancelledError(message, *_decode(failure.details), failure=failure)
        case "terminated":
            error = TerminatedError(message, failure=failure)
        case _:
            error = ApplicationError(
                message,
                *_decode(failure.details),
                type=failure.type or None,
                non_retryable=failure.non_retryable,
                next_retry_delay=None if delay_ms is None else timedelta(milliseconds=delay_ms),
                failure=failure,
            )
    if failure.cause is not None:
        error.__cause__ = error_of(failure.cause)
    return error


def _timeout_type(name: str) -> TimeoutType | None:
    return TimeoutType(name) if name in TimeoutType._value2member_map_ else None


def _message(error: BaseException) -> str:
    try:
        return error.message if isinstance(error, FailureError) else str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ of user code must not hide the failure
        return f"{type(error).__name__} (its text cannot be had)"


def _stack(tb: TracebackType | None) -> str:
    return clean_text("".join(traceback.format_tb(tb, limit=-40)), STACK_CHARS_MAX)


def _encode(details: tuple[object, ...]) -> tuple[Payload, ...]:
    try:
        return fit_details(encode_all(details, "detail"))
    except PayloadError as error:
        return encode_all((f"details were dropped: {error}",))


def _decode(details: tuple[Payload, ...]) -> list[Any]:
    values: list[Any] = []
    for payload in details:
        try:
            values.append(decode(payload))
        except PayloadError:  # the failure itself matters more than a detail that nobody can read
            values.append(payload)
    return values
