"""Decisions on time: deadlines, timers, timeouts, due retries, tasks to be published again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from odin.core.backoff import doubled
from odin.core.decide import NEVER_US, Change, Decision, Moment, deadline_us, started_due_us
from odin.core.decide_activity import attempt_failed, ended
from odin.core.events import (
    ActivityTaskTimedOut,
    AttemptRecord,
    TimerFired,
    WorkflowExecutionTimedOut,
)
from odin.core.execution import REPUBLISH_CAP_MS, RUNNING, Execution, PendingActivity
from odin.core.payload import Failure, Payload


class Beat(msgspec.Struct, frozen=True):
    """The newest heartbeat of an attempt, as owner memory holds it."""

    at_us: int
    details: tuple[Payload, ...] = ()


class Liveness(msgspec.Struct, frozen=True):
    """What the owner knows of started attempts beside the row.

    Args:
        beats: The newest heartbeat by command id.
        grace_until_us: No timeout of a started attempt is judged before this: a takeover must not
            time out healthy work.
        term_began_us: Heartbeat clocks restart with the term.
    """

    beats: Mapping[int, Beat] = msgspec.field(default_factory=dict)
    grace_until_us: int = 0
    term_began_us: int = 0

    def due_us(self, activity: PendingActivity) -> int:
        """Return when `activity` is to be looked at."""
        if activity.state != "started":
            return activity.due_us
        beat = self.beats.get(activity.command_id)
        last_us = max(self.term_began_us, beat.at_us if beat is not None else 0)
        return max(started_due_us(activity, last_us), self.grace_until_us)


def next_due_us(execution: Execution, liveness: Liveness) -> int | None:
    """Return when the owner must act next, with what it knows of heartbeats; None for never."""
    if execution.status != RUNNING:
        return None
    earliest = NEVER_US
    if execution.workflow_task.state != "none":
        earliest = execution.workflow_task.due_us
    for activity in execution.activities.values():
        due_us = activity.due_us if activity.state != "started" else liveness.due_us(activity)
        earliest = min(earliest, due_us)
    for timer in execution.timers.values():
        earliest = min(earliest, timer.fires_at_us)
    for deadline in (execution.run_deadline_us, execution.execution_deadline_us):
        if deadline is not None:
            earliest = min(earliest, deadline)
    return None if earliest >= NEVER_US else earliest


def decide_due(execution: Execution, moment: Moment, liveness: Liveness) -> Decision | None:
    """Decide everything of the run that is due now; None when nothing is.

    A deadline of the run ends it before anything else happens. Else timers fire, in the order of
    their times and then of their ids; then activities are looked at, then the workflow task.
    """
    if not execution.is_open:
        return None
    change = Change(execution, moment)
    now_us = moment.now_us
    passed = _passed_deadline(execution, now_us)
    if passed is not None:
        change.close(WorkflowExecutionTimedOut(timeout_type=passed), "timed_out")
        return change.decision()
    acted = _fire_timers(change, now_us)
    for activity in execution.activities.values():
        if liveness.due_us(activity) <= now_us:
            _activity_due(change, activity, liveness, now_us)
            acted = True
    acted = _task_due(change, now_us) or acted
    if not acted:
        return None
    change.wake_if_visible()
    return change.decision()


def _passed_deadline(execution: Execution, now_us: int) -> str | None:
    """Return which deadline has ended the run, the earlier one if both have; None for neither."""
    run_us = NEVER_US if execution.run_deadline_us is None else execution.run_deadline_us
    chain_us = execution.execution_deadline_us
    if chain_us is not None and chain_us <= min(now_us, run_us):
        return "execution"
    return "run" if run_us <= now_us else None


def _fire_timers(change: Change, now_us: int) -> bool:
    """Fire what is due, by time and then by id; return whether anything was."""
    due = [timer for timer in change.after.timers.values() if timer.fires_at_us <= now_us]
    for timer in sorted(due, key=lambda timer: (timer.fires_at_us, timer.command_id)):
        del change.after.timers[timer.command_id]
        change.append(TimerFired(command_id=timer.command_id))
    return bool(due)


def _task_due(change: Change, now_us: int) -> bool:
    """Publish the workflow task if its time has come; return whether it had."""
    task = change.after.workflow_task
    if task.state == "none" or task.due_us > now_us:
        return False
    if task.state == "scheduled" and not task.pushed:
        task.interval_ms = doubled(task.interval_ms, REPUBLISH_CAP_MS)
    task.attempt += 1
    change.publish_workflow_task()
    return True


def _activity_due(
    change: Change, activity: PendingActivity, liveness: Liveness, now_us: int
) -> None:
    if activity.state == "started":
        _attempt_timed_out(change, activity, liveness, now_us)
    elif deadline_us(activity) <= now_us:
        _activity_timed_out(change, activity, now_us)
    elif activity.state == "backoff":
        change.publish_activity(msgspec.structs.replace(activity, queued_us=change.at_us))
    else:
        change.publish_activity(activity, doubled(activity.interval_ms, REPUBLISH_CAP_MS))


def _attempt_timed_out(
    change: Change, activity: PendingActivity, liveness: Liveness, now_us: int
) -> None:
    beat = liveness.beats.get(activity.command_id)
    details = beat.details if beat is not None else activity.heartbeat_details
    if _past_schedule_to_close(activity, now_us):
        change.stop(activity, "timed out")
        _close_timed_out(
            change,
            activity,
            "schedule_to_close",
            ended(change, activity, "timed_out:schedule_to_close"),
        )
        return
    kind = "heartbeat"
    if (
        activity.start_to_close_ms is not None
        and activity.started_us + activity.start_to_close_ms * 1_000 <= now_us
    ):
        kind = "start_to_close"
    change.stop(activity, "timed out")
    attempt_failed(change, activity, _timeout(kind, activity), f"timed_out:{kind}", details)


def _activity_timed_out(change: Change, activity: PendingActivity, now_us: int) -> None:
    kind = "schedule_to_close" if _past_schedule_to_close(activity, now_us) else "schedule_to_start"
    _close_timed_out(change, activity, kind, activity.attempts)


def _close_timed_out(
    change: Change, activity: PendingActivity, kind: str, attempts: tuple[AttemptRecord, ...]
) -> None:
    change.after.activities.pop(activity.command_id)
    change.append(
        ActivityTaskTimedOut(
            command_id=activity.command_id,
            timeout_type=kind,
            failure=_timeout(kind, activity),
            retry_state="timeout",
            attempts=attempts,
        )
    )


def _past_schedule_to_close(activity: PendingActivity, now_us: int) -> bool:
    if activity.schedule_to_close_ms is None:
        return False
    return activity.scheduled_us + activity.schedule_to_close_ms * 1_000 <= now_us


def _timeout(kind: str, activity: PendingActivity) -> Failure:
    """Return the failure of a timeout; its cause is what went wrong before, but for timeouts.

    A chain of them would grow with every attempt.
    """
    before = activity.last_failure
    return Failure(
        message=f"activity {activity.activity_type} exceeded its {kind} timeout"
        f" in attempt {activity.attempt}",
        kind="timeout",
        type="TimeoutError",
        timeout_type=kind,
        cause=before.cause if before is not None and before.timeout_type else before,
    )
