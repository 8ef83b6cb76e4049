"""What the demo's orders say of themselves in their histories, decoded here and nowhere else.

A payload is a pair (encoding, bytes); only JSON is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from odin.proof.rows import EventRow


def argument_of(event: EventRow) -> dict[str, Any]:
    """Return the first argument that an event carries, if it is an object; else nothing."""
    match event.attributes.get("input"):
        case [payload, *_]:
            return _object(payload)
        case _:
            return {}


def result_of(event: EventRow) -> dict[str, Any]:
    """Return the result that an event carries, if it is an object; else nothing."""
    return _object(event.attributes.get("result"))


def whole(value: object) -> int:
    """Return a number of cents or pieces; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _object(payload: object) -> dict[str, Any]:
    match payload:
        case [str(), bytes() as data]:
            pass
        case _:
            return {}
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
