"""One run in owner memory.

Its newest state, the tail of its history, and what only memory knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odin.core.decide import Decision
from odin.core.decide_due import Beat, Liveness, next_due_us
from odin.core.events import HistoryEvent
from odin.core.execution import Execution

TAIL_EVENTS_MAX: Final = 2_000
TAIL_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of attributes: a run with large events keeps fewer of them in memory."""
HOLD_ROUNDS: Final = 3
"""From this refused closing report on, new messages of the run are held back."""
_NEVER: Final = 2**62


class Run:
    """A run as its owner holds it, decisions that have not committed yet included.

    Attributes:
        execution: The newest state.
        claimant: The worker that holds the claim of the scheduled workflow task, "" for nobody.
        warm: The worker that keeps the run in its memory, "" for nobody.
        warm_event_id: The newest event that the warm worker is known to hold.
        beats: The newest heartbeat of each started activity, by command id.
        liveness: What the term has made of the heartbeats for its decisions, once asked for.
        rounds: How often in a row a closing report was refused for an unseen message.
        hold_until_us: New messages are held back until then, or until a report is judged.
        sent_number: The newest workflow task that this term has pushed or published.
        queued_due_us: The earliest entry of this run in the due queue.
        touched_at: Boottime of the last use, for eviction.
    """

    __slots__ = (
        "beats",
        "claimant",
        "execution",
        "hold_until_us",
        "liveness",
        "queued_due_us",
        "rounds",
        "sent_number",
        "tail",
        "tail_after",
        "tail_bytes",
        "touched_at",
        "warm",
        "warm_event_id",
    )

    def __init__(self, execution: Execution, touched_at: float) -> None:
        self.execution = execution
        self.tail: list[HistoryEvent] = []
        self.tail_after = execution.next_event_id - 1
        self.tail_bytes = 0
        self.claimant = ""
        self.warm = ""
        self.warm_event_id = 0
        self.beats: dict[int, Beat] = {}
        self.liveness: Liveness | None = None
        self.rounds = 0
        self.sent_number = 0
        self.hold_until_us = 0
        self.queued_due_us = _NEVER
        self.touched_at = touched_at

    def take(self, decision: Decision) -> None:
        """Move on to the state after `decision`."""
        if decision.events:
            if decision.is_new:
                self.tail_after = 0
            self._append(decision.events)
        self.execution = execution = decision.execution
        for stopped in decision.stopped:
            self.beats.pop(stopped.command_id, None)
        task = execution.workflow_task
        if decision.push or (decision.tasks and _sends_workflow_task(decision)):
            self.sent_number = task.number
        if task.state != "scheduled":
            self.claimant = ""
        if not execution.is_open:
            self.warm = ""
            self.beats.clear()

    def events_after(self, after: int, upto: int) -> list[HistoryEvent] | None:
        """Return the events from after `after` to `upto`, or None if memory lacks some."""
        if after >= upto:
            return []
        if after < self.tail_after:
            return None
        return self.tail[after - self.tail_after : upto - self.tail_after]

    def prepend(self, events: list[HistoryEvent]) -> None:
        """Put events read from Postgres in front of the tail, if they end where it begins.

        Only while there is room: whoever reads a long history page by page must not bring it all
        into memory.
        """
        if not events or events[-1].event_id != self.tail_after:
            return
        size = _bytes_of(events)
        if (
            len(self.tail) + len(events) > TAIL_EVENTS_MAX
            or self.tail_bytes + size > TAIL_BYTES_MAX
        ):
            return
        self.tail[:0] = events
        self.tail_after = events[0].event_id - 1
        self.tail_bytes += size

    def due_us(self, liveness: Liveness) -> int:
        """Return when the owner must act next; 2**62 for never."""
        due = next_due_us(self.execution, liveness)
        return _NEVER if due is None else due

    def _append(self, events: Sequence[HistoryEvent]) -> None:
        tail = self.tail
        for event in events:
            tail.append(event)
            self.tail_bytes += len(event.attributes)
        while len(tail) > TAIL_EVENTS_MAX or self.tail_bytes > TAIL_BYTES_MAX:
            self._trim()

    def _trim(self) -> None:
        dropped = (len(self.tail) + 1) // 2
        self.tail_bytes -= _bytes_of(self.tail[:dropped])
        del self.tail[:dropped]
        self.tail_after += dropped


def _sends_workflow_task(decision: Decision) -> bool:
    return any(task.entry.kind == "w" for task in decision.tasks)


def _bytes_of(events: Sequence[HistoryEvent]) -> int:
    return sum(len(event.attributes) for event in events)
