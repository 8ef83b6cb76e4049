"""I9: what is open goes on, once the last fault is over and everything had its time.

A run may wait: for a signal nobody has sent, for a timer, for a retry or an attempt under way.
All but the first have an instant at which they end, and the run's row keeps a lower bound of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tally import Tally, ids

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import ExecutionRow

    from .rows import Moment


class Liveness:
    """The accumulator of I9; fed with the rows of open runs."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self.tally = Tally("I9", "no run is open")

    def add(self, run: ExecutionRow) -> None:
        """Judge one run; a closed one has reached its end."""
        if run.status != "running":
            self.tally.judge(kind="closed")
            return
        self.tally.judge(kind="open")
        subject = ids((run.workflow_id, run.run_id))
        if self._moment.is_broken:
            self.tally.doubt(subject, "open while a fault is not healed")
            return
        if run.due_at_us is not None:
            self._judge_due(subject, max(run.due_at_us, run.last_event_at_us))
        elif (waits := waits_for_others(run.pending)) is None:
            self.tally.doubt(subject, "what it waits for cannot be read")
        elif waits:
            self.tally.counts["waiting for a signal"] += 1
        elif self._moment.is_quiet_since(run.last_event_at_us):
            self.tally.blame(subject, "open with work that nothing brings back")

    def _judge_due(self, subject: str, due_us: int) -> None:
        if self._moment.is_quiet_since(due_us):
            self.tally.blame(subject, "open long after it was due")
        elif self._moment.now_us - due_us > self._moment.settle_us:
            self.tally.doubt(subject, "overdue, but a fault has only just ended")

    def finding(self) -> Finding:
        """Return what all runs add up to."""
        return self.tally.finding()


def waits_for_others(pending: list[Any] | None) -> bool | None:
    """Return whether nothing in a row's `pending` is to be done; None if it cannot be read.

    `pending` is [workflow task, {command id: activity}, {command id: timer}, ...], and a workflow
    task begins with its state.
    """
    match pending:
        case [[str() as state, *_], dict() as activities, dict() as timers, *_]:
            return state == "none" and not activities and not timers
        case _:
            return None
