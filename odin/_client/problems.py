"""Turns a problem+json answer back into the error that the engine raised."""

from __future__ import annotations

from typing import Final

import msgspec

from odin import errors
from odin.errors import Code, OdinError

_RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})
_SERVER: Final = 502
_CODES: Final = {code.status: code.value for code in reversed(Code)}
_REASONS: Final = {422: "REQUEST_MISMATCH"}
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
    code = problem.code or _CODES.get(status, "UNAVAILABLE" if status >= _SERVER else "INTERNAL")
    error = errors.rebuild(
        code,
        problem.reason or _REASONS.get(status, ""),
        problem.detail or problem.title,
        retry_after=wait,
        details=problem.details,
    )
    error.retryable = problem.retryable or status in _RETRYABLE_STATUSES
    return error
