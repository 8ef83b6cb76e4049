"""What an exception that left the code means: the run's end, its failure, or a failed task."""

from __future__ import annotations

import builtins
from enum import Enum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.core import sources
from odin.core.failures import (
    ActivityError,
    CancelledError,
    FailureError,
    WorkflowTaskError,
    failure_of,
)
from odin.core.payload import STACK_CHARS_MAX, Failure, clean_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Verdict(Enum):
    """What an exception means for the run."""

    CANCELED = "canceled"
    FAILED = "failed"
    BUG = "bug"


def judge(
    error: BaseException, failure_types: Sequence[type[BaseException]], *, cancel_requested: bool
) -> Verdict:
    """Return what it means that `error` left the code.

    Only failure types fail a run; anything else is taken for a bug that better code can mend. A
    group of a TaskGroup counts as what all its members are.
    """
    members = list(_members(error))
    if cancel_requested and all(is_cancellation(member) for member in members):
        return Verdict.CANCELED
    failures = (FailureError, builtins.TimeoutError, *failure_types)
    if all(isinstance(member, failures) for member in members):
        return Verdict.FAILED
    return Verdict.BUG


def is_cancellation(error: BaseException) -> bool:
    """Return whether `error` says that something was cancelled: asyncio, odin or an activity."""
    if isinstance(error, ActivityError):
        return isinstance(error.__cause__, CancelledError)
    return isinstance(error, CancelledError) or _is_asyncio_cancellation(error)


def run_failure(error: BaseException) -> Failure:
    """Return how the failure of a run is written down; a group shows its first member as cause."""
    failure = failure_of(error)
    if isinstance(error, BaseExceptionGroup):
        failure = replace(failure, cause=failure_of(next(_members(error))))
    return replace(failure, source=sources.of_traceback(error.__traceback__))


def task_error(error: BaseException, standing: str) -> WorkflowTaskError:
    """Return `error` as the failure of a workflow task, with the line to look at.

    Args:
        error: What left the code, or what odin found wrong.
        standing: The line at which the code stands, in case the traceback names none.
    """
    source = sources.of_traceback(error.__traceback__) or standing
    if isinstance(error, WorkflowTaskError):
        if not error.failure.source:
            error.failure = replace(error.failure, source=source)
        return error
    written = failure_of(error)
    message = f"{type(error).__name__}: {written.message}"
    if _is_asyncio_cancellation(error):
        message = (
            "asyncio.CancelledError left the workflow although nobody had asked the run to stop:"
            " something that it cancelled itself was awaited; catch the error where you await it"
        )
    elif isinstance(error, SystemExit):
        message = (
            f"SystemExit({error.code!r}): a workflow must not exit the process; return, or raise"
            " ApplicationError"
        )
    failure = Failure(
        clean_text(message),
        "worker",
        written.type,
        stack_trace=written.stack_trace[-STACK_CHARS_MAX:],
        source=source,
        cause=written.cause,
    )
    return WorkflowTaskError(message, failure)


def _members(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _members(member)
    else:
        yield error


def _is_asyncio_cancellation(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError" and not isinstance(error, Exception)
