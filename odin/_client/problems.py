"""Turns a problem+json answer back into the error that the engine raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from odin import errors
from odin.errors import Code, OdinError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})
_UNPROCESSABLE: Final = 422
_SERVER_ERROR: Final = 500


class Problem(msgspec.Struct, kw_only=True):
    """The parts of a problem that callers branch on."""

    detail: str = ""
    title: str = ""
    code: str = ""
    reason: str = ""
    retryable: bool = False
    retry_after_ms: int | None = None
    details: dict[str, object] = {}


def _subclasses(cls: type[OdinError]) -> Iterator[type[OdinError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _classes() -> dict[str, type[OdinError]]:
    """Return the classes of `odin.errors` by their reason; a reason of its own names one class."""
    found = [one for one in _subclasses(OdinError) if one.__module__ == errors.__name__]
    return {one.reason: one for one in reversed(found)}


_BY_REASON: Final = _classes()
_BY_CODE: Final[dict[Code, type[OdinError]]] = {
    Code.INVALID_ARGUMENT: errors.InvalidArgumentError,
    Code.FAILED_PRECONDITION: errors.FailedPreconditionError,
    Code.UNAUTHENTICATED: errors.UnauthenticatedError,
    Code.PERMISSION_DENIED: errors.PermissionDeniedError,
    Code.NOT_FOUND: errors.NotFoundError,
    Code.ABORTED: errors.AbortedError,
    Code.ALREADY_EXISTS: errors.AlreadyExistsError,
    Code.RESOURCE_EXHAUSTED: errors.ResourceExhaustedError,
    Code.UNAVAILABLE: errors.UnavailableError,
    Code.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
}


def error_of_answer(status: int, body: bytes, retry_after: str | None) -> OdinError:
    """Return the error that an answer tells of, whoever gave it (a proxy speaks no problem+json).

    Args:
        status: The HTTP status, 400 or higher.
        body: The whole body.
        retry_after: That header, if there is one.
    """
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not of odin: of a proxy, or of a server cut while it stopped. A 500 is then no verdict.
        problem = Problem(
            detail=f"the answer is HTTP {status} without an explanation",
            retryable=status >= _SERVER_ERROR,
        )
    wait = problem.retry_after_ms / 1_000 if problem.retry_after_ms is not None else None
    if wait is None and retry_after is not None and retry_after.isdigit():
        wait = float(retry_after)
    cls = _BY_REASON.get(problem.reason) or _class_of(status, problem.code)
    text = problem.detail or problem.title
    reason = problem.reason or None
    error = cls(text) if cls is errors.NotPublishedError else cls(text, reason=reason)
    error.retry_after = wait
    error.details = problem.details
    error.retryable = problem.retryable or status in _RETRYABLE_STATUSES
    return error


def _class_of(status: int, code: str) -> type[OdinError]:
    if status == _UNPROCESSABLE:
        return errors.RequestMismatchError
    if code in Code.__members__ and Code[code] in _BY_CODE:
        return _BY_CODE[Code[code]]
    fitting = [one for one in _BY_CODE if one.status == status]
    if fitting:
        return _BY_CODE[fitting[0]]
    return errors.UnavailableError if status in _RETRYABLE_STATUSES else errors.InternalError
