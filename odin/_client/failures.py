"""What `result()` raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.core.failures import (
    CancelledError,
    FailureError,
    TerminatedError,
    TimeoutError,  # noqa: A004 - the name that users know
    error_of,
)
from odin.errors import OdinError

if TYPE_CHECKING:
    from odin.core.requests import Outcome

_WORDS: Final = {
    "failed": "the workflow failed",
    "canceled": "the workflow was cancelled",
    "terminated": "the workflow was terminated",
    "timed_out": "the workflow ran out of time",
}


class WorkflowFailureError(OdinError):
    """The workflow ended without a result; `cause` says why.

    Args:
        message: How it ended.
        cause: The failure.
        run_id: The run that ended so.
    """

    reason = "WORKFLOW_FAILED"

    def __init__(self, message: str, *, cause: BaseException, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.__cause__ = cause

    @property
    def cause(self) -> BaseException:
        """The failure: ApplicationError, ActivityError, CancelledError, TerminatedError, ..."""
        assert self.__cause__ is not None  # noqa: S101 - set by the constructor
        return self.__cause__


class WorkflowContinuedAsNewError(OdinError):
    """The run ended by continuing as `new_run_id`, which was not to be followed."""

    reason = "CONTINUED_AS_NEW"

    def __init__(self, new_run_id: str) -> None:
        super().__init__(f"the run continued as {new_run_id}")
        self.new_run_id = new_run_id


def failure_of_outcome(outcome: Outcome, workflow_id: str) -> WorkflowFailureError:
    """Return the error for a run that closed without a result."""
    words = _WORDS.get(outcome.status, f"the workflow ended as {outcome.status}")
    cause: FailureError
    if outcome.failure is not None:
        cause = error_of(outcome.failure)
    elif outcome.status == "canceled":
        cause = CancelledError(words)
    elif outcome.status == "timed_out":
        cause = TimeoutError(words)
    else:
        cause = TerminatedError(words)
    return WorkflowFailureError(
        f"{words} ({workflow_id}): {cause}", cause=cause, run_id=outcome.run_id
    )
