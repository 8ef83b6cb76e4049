"""I14: every task is on its way, or has an instant that brings it back; and none is left over.

A run's row keeps `due_at`, a lower bound of the earliest instant at which something pending in it
must be looked at. A row of the outbox goes once the broker has confirmed the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tally import Tally, ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.proof.findings import Finding
    from odin.proof.rows import RunRows

    from .rows import Moment, OutboxState

# Places in the packed lists of a row's `pending`.
_TASK_STATE, _TASK_DUE = 0, 3
_ACTIVITY_DUE = 13
_TIMER_DUE = 1
_TASK_PARTS_MIN = 4
_ACTIVITY_PARTS_MIN = 14
_TIMER_PARTS_MIN = 2


class Outbox:
    """The accumulator of I14; fed with runs, and with the whole outbox."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self.tally = Tally("I14", "no task is open, and the outbox is empty")

    def add_run(self, rows: RunRows) -> None:
        """Judge the pending work of one open run."""
        run = rows.execution
        if run is None or run.status != "running":
            return
        subject = ids((run.workflow_id, run.run_id))
        self.tally.judge(kind="open runs")
        dues = pending_dues(run.pending)
        if dues is None:
            self.tally.doubt(subject, "what is pending cannot be read")
            return
        if not dues:
            return
        if run.due_at_us is None:
            self.tally.blame(subject, "pending work without an instant that brings it back")
            return
        if run.due_at_us > max(min(dues), self._moment.now_us):
            self.tally.blame(subject, "an instant later than what it must bring back")
        if rows.outbox is None:
            self.tally.doubt(subject, "the outbox was not read")
        elif run.has_task and not rows.outbox and self._is_late(run.due_at_us):
            self.tally.blame(subject, "a task that is not on its way, and late")

    def add_outbox(self, rows: Iterable[OutboxState]) -> None:
        """Judge rows of the outbox."""
        for row in rows:
            self.tally.judge(kind="outbox rows")
            subject = ids((row.shard_id, row.id))
            is_late = self._is_late(row.created_at_us)
            if row.status == "running":
                if is_late:
                    self.tally.blame(subject, "an outbox row that nobody publishes")
            elif is_late and self._is_late(row.closed_at_us or 0):
                self.tally.blame(subject, "an outbox row of a run that is closed")
            if not is_late and self._moment.now_us - row.created_at_us > self._moment.settle_us:
                self.tally.doubt(subject, "an old outbox row, but a fault has only just ended")

    def _is_late(self, at_us: int) -> bool:
        return not self._moment.is_broken and self._moment.is_quiet_since(at_us)

    def finding(self) -> Finding:
        """Return what all runs and the outbox add up to."""
        return self.tally.finding()


def pending_dues(pending: list[Any] | None) -> list[int] | None:
    """Return the due instant of everything pending in a run; None if it cannot be read."""
    match pending:
        case [list() as task, dict() as activities, dict() as timers, *_]:
            pass
        case _:
            return None
    if (
        len(task) < _TASK_PARTS_MIN
        or any(len(one) < _ACTIVITY_PARTS_MIN for one in activities.values())
        or any(len(one) < _TIMER_PARTS_MIN for one in timers.values())
    ):
        return None
    dues = [int(one[_ACTIVITY_DUE]) for one in activities.values()]
    dues += [int(one[_TIMER_DUE]) for one in timers.values()]
    if task[_TASK_STATE] != "none":
        dues.append(int(task[_TASK_DUE]))
    return dues
