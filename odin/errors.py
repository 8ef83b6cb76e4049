"""The error tree of odin: one base, canonical codes, one specific reason each.

    OdinError
    ├── InvalidArgumentError            400  the caller's input is wrong; fix it
    ├── FailedPreconditionError         400  the state forbids it; retry after the state changed
    ├── UnauthenticatedError            401
    ├── PermissionDeniedError           403
    ├── NotFoundError                   404
    ├── AbortedError                    409  retry from the read
    ├── AlreadyExistsError              409
    │   └── WorkflowAlreadyStartedError      carries the run_id that is in the way
    ├── RequestMismatchError            422  the same request id with another body
    ├── ResourceExhaustedError          429  carries retry_after; nothing was changed
    ├── InternalError                   500
    ├── UnavailableError                503  retry the same call
    │   ├── ShardMovingError                 no owner right now
    │   ├── NotOwnerError                    another node owns the shard; carries the hint
    │   ├── NotLeaderError                   standby mode; carries the leader's address
    │   ├── StoreUnavailableError            the database cannot be reached, or takes no writes
    │   │   └── StoreFullError                   its disk has no room left
    │   ├── OutcomeUnknownError              the write may or may not have happened
    │   └── NotPublishedError                a task message without a confirm
    └── DeadlineExceededError           504

`code` is the gRPC name, `reason` the specific one. Branch on these, never on the text.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Code(Enum):
    """Canonical error codes and their HTTP status."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    ABORTED = "ABORTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"

    @property
    def status(self) -> int:
        """The HTTP status that stands for this code."""
        return _STATUS[self]


_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ABORTED: 409,
    Code.ALREADY_EXISTS: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class OdinError(Exception):
    """Base of every error that odin raises on purpose.

    Args:
        message: What happened, why, and what to do next.
        reason: The specific reason; the class's own when not given.
        retry_after: Seconds after which the same call may succeed, when that is known.
        details: Facts for the caller, all of them JSON values.
    """

    code: ClassVar[Code] = Code.INTERNAL
    reason: str = "INTERNAL"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        retry_after: float | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason
        self.retry_after = retry_after
        self.details: dict[str, object] = details or {}

    @property
    def status(self) -> int:
        """The HTTP status of this error."""
        return self.code.status


class InvalidArgumentError(OdinError):
    """The caller's input is wrong; the same call can never succeed."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"


class PayloadError(InvalidArgumentError):
    """A value cannot be stored and replayed exactly: NaN, a lone surrogate, too deep, too large."""

    reason = "BAD_PAYLOAD"


class FailedPreconditionError(OdinError):
    """The state forbids the call; it may succeed once the state has changed."""

    code = Code.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"


class ConfigurationError(FailedPreconditionError):
    """A setting is missing, contradicts another one, or differs from the cluster's."""

    reason = "BAD_CONFIGURATION"


class UnauthenticatedError(OdinError):
    """No token, or a wrong one."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(OdinError):
    """The caller may not do this."""

    code = Code.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class NotFoundError(OdinError):
    """There is no such thing."""

    code = Code.NOT_FOUND
    reason = "NOT_FOUND"


class AbortedError(OdinError):
    """Somebody else was faster; read again, then decide."""

    code = Code.ABORTED
    reason = "ABORTED"


class RunClosedError(FailedPreconditionError):
    """The run is closed: nothing more can be asked of it."""

    reason = "RUN_CLOSED"


class AlreadyExistsError(OdinError):
    """The thing exists already."""

    code = Code.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"


class WorkflowAlreadyStartedError(AlreadyExistsError):
    """A run of this workflow id is in the way; `details["run_id"]` names it."""

    reason = "ALREADY_STARTED"


class RequestMismatchError(InvalidArgumentError):
    """A request id came again with another body."""

    reason = "REQUEST_MISMATCH"

    @property
    def status(self) -> int:
        """422: the request is well formed, and contradicts an earlier one."""
        return 422


class ResourceExhaustedError(OdinError):
    """A limit refused the request; nothing was changed. `details["limit"]` names the limit."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "RESOURCE_EXHAUSTED"
    retryable = True


class InternalError(OdinError):
    """A fault of odin itself."""


class UnavailableError(OdinError):
    """The same call may succeed a moment later, here or elsewhere.

    `is_definite` says whether this copy of the call surely changed nothing, now or later.
    """

    code = Code.UNAVAILABLE
    reason = "UNAVAILABLE"
    retryable = True
    is_definite: ClassVar[bool] = False


class ShardMovingError(UnavailableError):
    """The shard has no serving owner right now; nothing was changed."""

    reason = "SHARD_MOVING"
    is_definite = True


class NotOwnerError(UnavailableError):
    """This node does not serve the shard; `details` may name the owner."""

    reason = "NOT_OWNER"
    is_definite = True


class NotLeaderError(UnavailableError):
    """Standby mode: another node serves writes; `details["leader"]` is its address."""

    reason = "NOT_LEADER"
    is_definite = True


class StoreUnavailableError(UnavailableError):
    """The database cannot be reached, or refused; nothing was changed."""

    reason = "STORE_UNAVAILABLE"
    is_definite = True


class StoreFullError(StoreUnavailableError):
    """The database has no room left on its disk; nothing was changed."""

    reason = "STORE_FULL"


class OutcomeUnknownError(UnavailableError):
    """The write may or may not have happened; the same request id tells when asked again."""

    reason = "OUTCOME_UNKNOWN"


class NotPublishedError(UnavailableError):
    """The broker has not confirmed a message: its rows stay in the outbox and go out again.

    `maybe_sent` says whether it may be in a queue all the same (no answer came); False means that
    it surely is not (never sent, returned, or refused).
    """

    reason = "NOT_PUBLISHED"
    maybe_sent: bool = False

    def __init__(self, message: str, *, maybe_sent: bool = False) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class DeadlineExceededError(OdinError):
    """The caller's time is up; what was asked may still happen."""

    code = Code.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"
    retryable = True


def rebuild(
    code: str,
    reason: str,
    message: str,
    *,
    retry_after: float | None = None,
    details: dict[str, object] | None = None,
) -> OdinError:
    """Return the error that another process raised, from its parts.

    Args:
        code: The gRPC name.
        reason: The specific reason; it picks the class where one has it, else the code does.
        message: The text.
        retry_after: Seconds, if the other knew.
        details: Facts for the caller.
    """
    classes = list(_tree(OdinError))
    fitting = [one for one in classes if one.reason == reason]
    fitting += [one for one in classes if one.code.value == code]
    cls = fitting[0] if fitting else InternalError
    error = OdinError.__new__(cls)
    OdinError.__init__(
        error, message, reason=reason or None, retry_after=retry_after, details=details
    )
    return error


def _tree(cls: type[OdinError]) -> list[type[OdinError]]:
    found: list[type[OdinError]] = []
    for child in cls.__subclasses__():
        if child.__module__ == __name__:
            found.append(child)
            found.extend(_tree(child))
    return found
