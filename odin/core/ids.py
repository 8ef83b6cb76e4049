"""Names and ids: their types and the one rule for what an id may look like."""

from __future__ import annotations

import re
from typing import NewType, TypeGuard

from odin.errors import InvalidArgumentError

ShardId = NewType("ShardId", int)
RangeId = NewType("RangeId", int)
Incarnation = NewType("Incarnation", str)
RunId = NewType("RunId", str)

DEFAULT_NAMESPACE = "default"
DEFAULT_TASK_QUEUE = "default"

ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,200}\Z"
"""What an id looks like, for structs whose decoder judges it; "." and ".." are none either."""
_ID = re.compile(ID_PATTERN)
_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_RESERVED = frozenset({".", ".."})


def check_id(value: object, what: str) -> str:
    """Return `value` if it may serve as an id.

    Args:
        value: One to 200 characters of `A-Z a-z 0-9 . _ : @ -`, but not "." or "..".
        what: What the id names, for the error.

    Raises:
        InvalidArgumentError: The value is empty, too long, or has another character in it.
    """
    if not is_id(value):
        shown = repr(value)[:80]
        raise InvalidArgumentError(
            f"{what} {shown} is not an id: use 1 to 200 characters of A-Z a-z 0-9 . _ : @ -",
            reason="BAD_ID",
            details={"field": what},
        )
    return value


def is_id(value: object) -> TypeGuard[str]:
    """Return whether `value` may serve as an id, as `check_id` judges."""
    return isinstance(value, str) and value not in _RESERVED and _ID.match(value) is not None


def check_run_id(value: object) -> RunId:
    """Return `value` as a run id (a UUIDv7 in its lower-case form).

    Raises:
        InvalidArgumentError: It is not one.
    """
    if not isinstance(value, str) or not _RUN_ID.match(value):
        raise InvalidArgumentError(
            f"run_id {value!r:.80} is not a UUIDv7", reason="BAD_ID", details={"field": "run_id"}
        )
    return RunId(value)
