"""What `odin history` shows: each event as one row, with what its command had asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

_FAILED: Final = ("failed", "timed_out")
_VALUES: Final = ("result", "input", "details")


@dataclass(frozen=True)
class Row:
    """One event. Durations are seconds; None where there is none."""

    event_id: int
    since_start: float
    type: str
    name: str = ""
    attempt: str = ""
    wait: float | None = None
    run: float | None = None
    result: Any = None


@dataclass
class Rows:
    """Turns events, as the API shows them, into rows; remembers what later events refer to."""

    _began: datetime | None = None
    _asked: dict[int, tuple[str, datetime]] = field(default_factory=dict)

    def row(self, event: dict[str, Any]) -> Row:
        """Return the row of the next event."""
        at = datetime.fromisoformat(event["recorded_at"])
        self._began = self._began or at
        attributes: dict[str, Any] = event["attributes"]
        command_id = attributes.get("command_id")
        own_name = _name_of(attributes)
        name, asked_at = self._asked.get(command_id or 0, (own_name, at))
        if command_id is not None and command_id not in self._asked:
            self._asked[command_id] = (own_name, at)
        attempts: list[dict[str, Any]] = attributes.get("attempts") or []
        wait = run = None
        if attempts:
            first, last = attempts[0], attempts[-1]
            wait = (_at(first, "started_at") - asked_at).total_seconds()
            run = (_at(last, "ended_at") - _at(last, "started_at")).total_seconds()
        elif event["type"].startswith("timer_") and command_id is not None and at != asked_at:
            wait = (at - asked_at).total_seconds()
        return Row(
            event_id=event["event_id"],
            since_start=(at - self._began).total_seconds(),
            type=event["type"],
            name=name or own_name,
            attempt=str(attempts[-1]["attempt"]) if attempts else "",
            wait=None if wait is None else max(0.0, wait),
            run=run,
            result=_shown(event["type"], attributes),
        )


def _name_of(attributes: dict[str, Any]) -> str:
    for key in ("activity_type", "name", "workflow_type", "summary", "timeout_type"):
        if attributes.get(key):
            return str(attributes[key])
    if attributes.get("duration") is not None:
        return f"{attributes['duration']:g}s"
    return ""


def _at(attempt: dict[str, Any], key: str) -> datetime:
    return datetime.fromisoformat(attempt[key])


def _shown(type_name: str, attributes: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    failure = attributes.get("failure")
    if failure is not None:
        return _failure(failure)
    if attributes.get("reason"):
        return attributes["reason"]
    if type_name.startswith("workflow_task"):
        return None
    for key in _VALUES:
        value = attributes.get(key)
        if key in attributes and value not in (None, [], {}):
            return value[0] if key == "input" and len(value) == 1 else value
    return None


def _failure(failure: dict[str, Any]) -> str:
    said: list[str] = []
    at: dict[str, Any] | None = failure
    while at is not None:
        said.append(f"{at['type']}: {at['message']}" if at.get("type") else at["message"])
        at = at.get("cause")
    return " ← ".join(said)
