"""What the rules ask of a history: which event means what, and how a subject is named.

The names of the event types are repeated here on purpose: a rule that took them from the writer's
table would follow a mistake in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.proof.rows import EventRow, RunRows

STARTED: Final = "workflow_execution_started"
TASK_COMPLETED: Final = "workflow_task_completed"
CONTINUED: Final = "workflow_execution_continued_as_new"
CLOSINGS: Final = {
    "workflow_execution_completed": "completed",
    "workflow_execution_failed": "failed",
    "workflow_execution_canceled": "canceled",
    "workflow_execution_terminated": "terminated",
    "workflow_execution_timed_out": "timed_out",
    CONTINUED: "continued_as_new",
}
"""The status that each closing event gives a run."""

ACTIVITY: Final = "activity_task_scheduled"
ACTIVITY_COMPLETED: Final = "activity_task_completed"
TIMER: Final = "timer_started"
TIMER_FIRED: Final = "timer_fired"
ASKING: Final = frozenset({ACTIVITY, TIMER})
ANSWERS: Final = {
    ACTIVITY_COMPLETED: ACTIVITY,
    "activity_task_failed": ACTIVITY,
    "activity_task_timed_out": ACTIVITY,
    "activity_task_canceled": ACTIVITY,
    TIMER_FIRED: TIMER,
    "timer_canceled": TIMER,
}
"""What each resolution resolves."""
CANCEL_ASKED: Final = "activity_task_cancel_requested"

CLOCK_SLACK_US: Final = 1_000_000
"""How far two clocks, or one that was set, may be apart before an order by time counts as wrong."""


def place(event: EventRow) -> str:
    """Return how an event is named."""
    return f"{event.run_id}#{event.event_id}"


def command_of(event: EventRow) -> Any:  # noqa: ANN401 - whatever the row holds
    """Return the command id that the event is about."""
    return event.attributes.get("command_id")


def asked(events: Iterable[EventRow]) -> dict[Any, EventRow]:
    """Return the first asking event of each command id."""
    found: dict[Any, EventRow] = {}
    for event in events:
        if event.type in ASKING:
            found.setdefault(command_of(event), event)
    return found


def answered(events: Iterable[EventRow]) -> dict[Any, EventRow]:
    """Return the first resolution of each command id."""
    found: dict[Any, EventRow] = {}
    for event in events:
        if event.type in ANSWERS:
            found.setdefault(command_of(event), event)
    return found


def closing_of(rows: RunRows) -> EventRow | None:
    """Return the first closing event."""
    return next((event for event in rows.events if event.type in CLOSINGS), None)
