"""Events as JSON: user values as themselves, instants as ISO 8601, durations as seconds.

A field `x_ms` becomes `x` in seconds, `x_us` becomes `x_at` (or `x` where that says an instant).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from odin.core.events import from_history
from odin.core.payload import Failure, Payload

from .views import EventView, failure_view, instant, value_of

if TYPE_CHECKING:
    from odin.core.events import HistoryEvent

_INSTANT_NAMES: Final = ("_at", "time")


def event_view(stored: HistoryEvent) -> EventView:
    """Return an event as HTTP shows it; of an unknown type only how large its attributes are."""
    try:
        attributes = _fields(from_history(stored))
    except (KeyError, msgspec.DecodeError):
        attributes = {"unreadable_bytes": len(stored.attributes)}
    return EventView(
        event_id=stored.event_id,
        type=stored.type,
        recorded_at=instant(stored.recorded_at_us),
        attributes=attributes,
    )


def _fields(struct: msgspec.Struct) -> dict[str, object]:
    shown: dict[str, object] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name.endswith("_ms"):
            shown[name[:-3]] = None if value is None else value / 1_000
        elif name.endswith("_us"):
            bare = name[:-3]
            key = bare if bare.endswith(_INSTANT_NAMES) else f"{bare}_at"
            shown[key] = None if value is None else instant(value)
        else:
            shown[name] = _shown(value)
    return shown


def _shown(value: object) -> object:
    if isinstance(value, Payload):
        return value_of(value)
    if isinstance(value, Failure):
        return failure_view(value)
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    return value
