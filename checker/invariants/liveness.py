"""I9: what is open goes on, once the last fault is over and everything had its time.

A run may wait: for a signal nobody has sent, for a timer, for a retry or an attempt under way.
All but the first have an instant at which they end, and the run's row keeps a lower bound of it.
What waits to be taken by a worker waits for nobody that has to come: it counts as standing still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .tally import Tally, ids

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import ExecutionRow

    from .rows import Moment


# Places in the packed lists of a row's `pending`.
_TASK_STATE, _TASK_FAILURES = 0, 6
_ACTIVITY_STATE, _ACTIVITY_QUEUED = 11, 15
_WAITING: Final = "scheduled"


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
        if any(self._moment.is_quiet_since(at_us) for at_us in untaken_since(run)):
            self.tally.blame(subject, "open with a task that no worker takes")
        elif run.due_at_us is not None:
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


def untaken_since(run: ExecutionRow) -> list[int]:
    """Return since when each task of a run waits for a worker; nothing of what cannot be read.

    A workflow task that has failed comes and goes by its own backoff: it is taken.
    """
    found: list[int] = []
    match run.pending:
        case [list() as task, dict() as activities, *_]:
            pass
        case _:
            return found
    if task[_TASK_STATE : _TASK_STATE + 1] == [_WAITING] and not any(task[_TASK_FAILURES:][:1]):
        found.append(run.last_event_at_us)
    found += [
        max(int(one[_ACTIVITY_QUEUED]), run.started_at_us)
        for one in activities.values()
        if len(one) > _ACTIVITY_QUEUED and one[_ACTIVITY_STATE] == _WAITING
    ]
    return found


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
