"""The failures that authors raise and handle, with the names that users of Temporal know."""

from odin.core.failures import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    ForbiddenCallError,
    NondeterminismError,
    TerminatedError,
    TimeoutError,  # noqa: A004 - the name that users know
    TimeoutType,
    WorkflowTaskError,
)
from odin.errors import OdinError, WorkflowAlreadyStartedError

__all__ = [
    "ActivityError",
    "ApplicationError",
    "CancelledError",
    "FailureError",
    "ForbiddenCallError",
    "NondeterminismError",
    "OdinError",
    "TerminatedError",
    "TimeoutError",
    "TimeoutType",
    "WorkflowAlreadyStartedError",
    "WorkflowTaskError",
]
