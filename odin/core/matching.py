"""Command matching: what the code asks for must be what the history recorded, one by one.

A command and its event are brought to the same key: kind, command id, name. Equal keys fit.
Unequal ones mean that the code has changed under a running workflow, or that it is not
deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odin.core import commands as c
from odin.core import events as e
from odin.core.failures import NondeterminismError
from odin.core.payload import Failure, clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMAND_KEYS: Final[dict[type, Callable[[Any], tuple[object, ...]]]] = {
    c.ScheduleActivity: lambda x: ("activity", x.command_id, x.activity_type, x.activity_id),
    c.RequestCancelActivity: lambda x: ("cancellation of activity", x.command_id),
    c.StartTimer: lambda x: ("timer", x.command_id, x.duration_ms),
    c.CancelTimer: lambda x: ("cancellation of timer", x.command_id),
    c.CompleteWorkflow: lambda _: ("completion of the workflow",),
    c.FailWorkflow: lambda _: ("failure of the workflow",),
    c.CancelWorkflow: lambda _: ("cancellation of the workflow",),
    c.ContinueAsNew: lambda _: ("continue-as-new",),
}
_EVENT_KEYS: Final[dict[type, Callable[[Any], tuple[object, ...]]]] = {
    e.ActivityTaskScheduled: lambda x: ("activity", x.command_id, x.activity_type, x.activity_id),
    e.ActivityTaskCancelRequested: lambda x: ("cancellation of activity", x.command_id),
    e.TimerStarted: lambda x: ("timer", x.command_id, x.duration_ms),
    e.TimerCanceled: lambda x: ("cancellation of timer", x.command_id),
    e.WorkflowExecutionCompleted: lambda _: ("completion of the workflow",),
    e.WorkflowExecutionFailed: lambda _: ("failure of the workflow",),
    e.WorkflowExecutionCanceled: lambda _: ("cancellation of the workflow",),
    e.WorkflowExecutionContinuedAsNew: lambda _: ("continue-as-new",),
}
COMMAND_EVENTS: Final = frozenset(_EVENT_KEYS)
"""The events that record a command."""

_ADVICE: Final = (
    "The code of a running workflow has changed, or it is not deterministic. Deploy the code that"
    " wrote this history again, let its runs finish, and give the changed workflow another name;"
    " the run waits until then."
)


def fits(command: c.Command, event: e.Event) -> bool:
    """Return whether `event` records `command`."""
    return _COMMAND_KEYS[type(command)](command) == _EVENT_KEYS[type(event)](event)


def mismatch(
    run_id: str, event_id: int, event: e.Event | None, command: c.Command | None, source: str
) -> NondeterminismError:
    """Return the error that shows both sides.

    Args:
        run_id: The run. event_id: Where in the history they part. event: What the history has
            there; None when it has no further command of this workflow task. command: What the
            code asks for; None when it asks for nothing. source: `file:line` of where the code
            asks, or of where it now waits.
    """
    recorded = _text(_EVENT_KEYS[type(event)](event)) if event is not None else "no further command"
    asked = _text(_COMMAND_KEYS[type(command)](command)) if command is not None else "nothing"
    where = f" at {source}" if source else ""
    message = clean_text(
        f"run {run_id}, event {event_id}: the history has {recorded}, the code asks for"
        f" {asked}{where}. {_ADVICE}"
    )
    return NondeterminismError(
        message, Failure(message, "worker", "NondeterminismError", source=source)
    )


def _text(key: tuple[object, ...]) -> str:
    kind, *rest = key
    match rest:
        case []:
            return f"the {kind}"
        case [command_id, int(duration_ms)]:
            return f"{kind} {command_id} of {duration_ms} ms"
        case [command_id, name, activity_id] if activity_id != str(command_id):
            return f"{kind} {command_id} {name!r} (id {activity_id!r})"
        case [command_id, name, *_]:
            return f"{kind} {command_id} {name!r}"
        case _:
            return f"{kind} {rest[0]}"
