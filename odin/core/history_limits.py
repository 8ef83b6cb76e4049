"""How long one history may grow, and what happens then.

From `events_warned` on the owner says so, and `workflow.info().is_continue_as_new_suggested()` has
said so to the code. At the limit nothing is lost and nothing is ended: a workflow task that does
not close the run fails, visibly, with what to do; signals are refused; what is pending still ends
and is recorded, which bounds how far beyond the limit a history can get; a report that closes the
run or continues it as new, a cancel request and a termination are accepted as ever.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Final

from odin.core.execution import Execution
from odin.errors import FailedPreconditionError

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """The limits of one run's history."""

    events_warned: int = 10_240
    events_max: int = 51_200
    bytes_warned: int = 10 * MIB
    bytes_max: int = 50 * MIB

    def why_full(self, execution: Execution, commands: Sized = ()) -> str | None:
        """Return why nothing more is begun in this run, or None while there is room.

        Args:
            execution: The run.
            commands: What would be recorded: an event each, and one for the task.
        """
        events = execution.next_event_id - 1
        if execution.history_bytes < self.bytes_max and events + len(commands) < self.events_max:
            return None
        return (
            f"the history has {events} events and {execution.history_bytes} bytes, a run may have"
            f" {self.events_max} and {self.bytes_max}: let the code continue as new"
            " (workflow.continue_as_new) or end here, or terminate the run"
        )

    def check(self, execution: Execution) -> None:
        """Refuse a message to a run whose history is full.

        Raises:
            FailedPreconditionError: reason HISTORY_TOO_LONG; it says what to do.
        """
        why = self.why_full(execution)
        if why is not None:
            raise FailedPreconditionError(
                why, reason="HISTORY_TOO_LONG", details={"run_id": execution.run_id}
            )

    def is_crossed(self, before: Execution, after: Execution) -> bool:
        """Return whether the history has grown past a length that is worth a warning."""
        return (
            before.next_event_id <= self.events_warned < after.next_event_id
            or before.history_bytes <= self.bytes_warned < after.history_bytes
        )


HISTORY_LIMITS: Final = HistoryLimits()
