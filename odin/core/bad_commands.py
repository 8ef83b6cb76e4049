"""Which commands cannot be recorded: they fail their workflow task, visibly, and never the run.

The library that issues commands refuses most of these earlier, with a source line. This is the
owner's own look, before anything is written: what passes here can be stored and comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odin.core import commands
from odin.core.door import why_too_large
from odin.core.execution import Execution
from odin.core.ids import check_id, is_id
from odin.errors import InvalidArgumentError

PENDING_MAX: Final = 2_000
"""Pending activities, and pending timers, that one run may have."""
COMMAND_ID_MAX: Final = 2**31 - 1
DURATION_MS_MAX: Final = 10**14
"""Longer spans (some 3,000 years) could not be added to an instant and stored."""

_CLOSING: Final = commands.CLOSING_COMMANDS


def why_bad(execution: Execution, issued: Sequence[commands.Command]) -> str | None:
    """Return why the commands cannot be recorded, or None if they can."""
    if not issued:
        return None
    look = _Look(execution)
    for position, command in enumerate(issued, 1):
        if isinstance(command, _CLOSING) and position != len(issued):
            return f"command {position} closes the run, but {len(issued) - position} follow it"
        why = look.at(command)
        if why is not None:
            return why
    if max(len(look.activities), look.timers) > PENDING_MAX:
        return f"more than {PENDING_MAX} activities or timers would be pending; start fewer at once"
    return None


class _Look:
    """Looks at one command after another, as if those before it were recorded."""

    __slots__ = ("activities", "names", "newest", "timers")

    def __init__(self, execution: Execution) -> None:
        self.newest = execution.workflow_task.last_command_id
        self.activities = {
            command_id: activity.activity_id
            for command_id, activity in execution.activities.items()
        }
        self.names = set(self.activities.values())
        self.timers = len(execution.timers)

    def at(self, command: commands.Command) -> str | None:
        """Return why this command cannot be recorded."""
        match command:
            case commands.ScheduleActivity():
                return self._new_id(command.command_id) or self._activity(command)
            case commands.StartTimer():
                self.timers += 1
                return self._new_id(command.command_id) or _span(
                    command.command_id, "duration", command.duration_ms
                )
            case commands.RequestCancelActivity():
                self.names.discard(self.activities.pop(command.command_id, ""))
            case commands.ContinueAsNew():
                return _successor(command)
            case commands.CompleteWorkflow():
                return why_too_large((command.result,), "the result: value")
            case _:
                pass
        return None

    def _new_id(self, command_id: int) -> str | None:
        if command_id <= self.newest:
            return f"command id {command_id} was used before (newest: {self.newest})"
        if command_id > COMMAND_ID_MAX:
            return f"command id {command_id} is beyond {COMMAND_ID_MAX}"
        self.newest = command_id
        return None

    def _activity(self, command: commands.ScheduleActivity) -> str | None:
        command_id = command.command_id
        if command.activity_id in self.names:
            return (
                f"command {command_id}: an activity with the id {command.activity_id!r} is pending;"
                " two of one id would share their idempotency key"
            )
        self.activities[command_id] = command.activity_id
        self.names.add(command.activity_id)
        if (
            command.start_to_close_ms is None
            and command.schedule_to_close_ms is None
            and command.heartbeat_ms is None
        ):
            return (
                f"command {command_id}: an activity needs start_to_close, schedule_to_close or"
                " heartbeat: without any, the loss of its worker would never be noticed"
            )
        return (
            why_too_large(
                command.input, f"command {command_id}: activity {command.activity_id!r}: argument"
            )
            or _not_id(command.activity_type, "activity_type", command_id)
            or _not_id(command.activity_id, "activity_id", command_id)
            or _not_id(command.task_queue, "task_queue", command_id)
            or _span(command_id, "start_to_close", command.start_to_close_ms)
            or _span(command_id, "schedule_to_close", command.schedule_to_close_ms)
            or _span(command_id, "schedule_to_start", command.schedule_to_start_ms)
            or _span(command_id, "heartbeat", command.heartbeat_ms)
        )


def _successor(command: commands.ContinueAsNew) -> str | None:
    memo = () if command.memo is None else command.memo.values()
    return (
        why_too_large((*command.input, *memo), "continue_as_new: argument")
        or (command.workflow_type and _not_id(command.workflow_type, "workflow_type"))
        or (command.task_queue and _not_id(command.task_queue, "task_queue"))
        or _span(0, "run_timeout", command.run_timeout_ms)
    )


def _not_id(value: str, what: str, command_id: int = 0) -> str | None:
    if is_id(value):
        return None
    what = f"command {command_id}: {what}" if command_id else what
    try:
        check_id(value, what)
    except InvalidArgumentError as error:
        return str(error)
    return None


def _span(command_id: int, what: str, span_ms: int | None) -> str | None:
    if span_ms is None or 0 <= span_ms <= DURATION_MS_MAX:
        return None
    return f"command {command_id}: {what} of {span_ms} ms is no span of time from 0 on"
