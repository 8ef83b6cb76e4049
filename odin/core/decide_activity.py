"""Decisions on activities: durable claims, results, releases, and what a failure leads to."""

from __future__ import annotations

from typing import Final

import msgspec

from odin.core.backoff import delay_after_ms
from odin.core.decide import Change, Decision, Moment, deadline_us, started_due_us
from odin.core.door import kept_failure
from odin.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskTimedOut,
    AttemptRecord,
)
from odin.core.execution import ATTEMPTS_KEPT_MAX, TASK_DUE_MS, Execution, PendingActivity
from odin.core.payload import Failure, Payload, encode
from odin.core.wire import ActivityOutcome

RETRY_DELAY_MS_MAX: Final = 10 * 366 * 86_400 * 1_000
"""The longest wait (ten years) that a failure may ask for."""
_NONE: Final = encode(None)


class ClaimOutcome(msgspec.Struct, frozen=True):
    """What a claim leads to: its attempt (None: not wanted), and what to write if it is new."""

    activity: PendingActivity | None = None
    decision: Decision | None = None


def decide_claim(
    execution: Execution,
    command_id: int,
    attempt: int,
    claim_token: str,
    worker: str,
    moment: Moment,
) -> ClaimOutcome:
    """Decide a worker's claim of an attempt: a compare-and-set whose token the claimant has made.

    The same token again gets the same answer, so that a claim whose reply was lost is not spent.
    """
    activity = execution.activities.get(command_id)
    if activity is None or not execution.is_open:
        return ClaimOutcome()
    if activity.state == "started" and activity.claim_token == claim_token:
        return ClaimOutcome(activity)
    if activity.state != "scheduled" or activity.attempt + 1 != attempt:
        return ClaimOutcome()
    change = Change(execution, moment)
    if activity.attempts:
        change.not_before(activity.attempts[-1].ended_us)
    if change.at_us >= deadline_us(activity):
        return ClaimOutcome()
    started = msgspec.structs.replace(
        activity,
        state="started",
        attempt=attempt,
        claim_token=claim_token,
        worker=worker,
        started_us=change.at_us,
    )
    started.due_us = started_due_us(started, change.at_us)
    change.after.activities[command_id] = started
    return ClaimOutcome(started, change.decision())


def decide_activity_report(
    execution: Execution,
    command_id: int,
    claim_token: str,
    outcome: ActivityOutcome,
    moment: Moment,
    details: tuple[Payload, ...] = (),
) -> Decision | None:
    """Decide the end of an attempt; None when its claim is not valid (any more).

    Then nothing of it is recorded.

    Args:
        execution: The run.
        command_id: The activity.
        claim_token: What the attempt was claimed with.
        outcome: How it ended.
        moment: When.
        details: The newest heartbeat details of the attempt, handed to the next one.
    """
    activity = execution.activities.get(command_id)
    if (
        activity is None
        or not execution.is_open
        or activity.state != "started"
        or activity.claim_token != claim_token
    ):
        return None
    change = Change(execution, moment)
    if outcome.how == "completed":
        change.after.activities.pop(command_id)
        change.append(
            ActivityTaskCompleted(
                command_id=command_id,
                result=outcome.result or _NONE,
                attempts=ended(change, activity, "completed"),
            )
        )
    elif outcome.how == "canceled" and activity.cancel_requested:
        change.after.activities.pop(command_id)
        change.append(
            ActivityTaskCanceled(
                command_id=command_id,
                details=outcome.details,
                attempts=ended(change, activity, "canceled"),
            )
        )
    else:
        failure = outcome.failure or Failure(
            message="the worker stopped the attempt", kind="worker"
        )
        how = "failed" if outcome.how == "failed" else "canceled"
        attempt_failed(change, activity, failure, how, details)
    change.wake_if_visible()
    return change.decision()


def decide_release(
    execution: Execution, command_id: int, attempt: int, delay_ms: int, moment: Moment
) -> Decision | None:
    """Take back an unclaimed activity: it is published again after `delay_ms`, no attempt spent.

    None when the task is no longer wanted.
    """
    activity = execution.activities.get(command_id)
    if (
        activity is None
        or not execution.is_open
        or activity.state != "scheduled"
        or activity.attempt + 1 != attempt
    ):
        return None
    change = Change(execution, moment)
    released = msgspec.structs.replace(activity, interval_ms=TASK_DUE_MS // 2)
    released.due_us = min(change.at_us + delay_ms * 1_000, deadline_us(activity))
    change.after.activities[command_id] = released
    return change.decision()


def decide_republish_activities(
    execution: Execution, command_ids: frozenset[int], moment: Moment
) -> Decision | None:
    """Send these scheduled activities through the outbox again: a new owner found them nowhere."""
    change = Change(execution, moment)
    for command_id in sorted(command_ids):
        activity = execution.activities.get(command_id)
        if activity is not None and activity.state == "scheduled":
            change.publish_activity(activity)
    return change.decision() if change.tasks else None


def ended(change: Change, activity: PendingActivity, how: str) -> tuple[AttemptRecord, ...]:
    """Return the attempts of `activity` with the running one ended, at the change's time.

    That is moved to the attempt's start if it lies before it.
    """
    change.not_before(activity.started_us)
    record = AttemptRecord(
        attempt=activity.attempt,
        claim_token=activity.claim_token,
        worker=activity.worker,
        started_us=activity.started_us,
        ended_us=change.at_us,
        how=how,
    )
    return (*activity.attempts, record)[-ATTEMPTS_KEPT_MAX:]


def attempt_failed(
    change: Change,
    activity: PendingActivity,
    failure: Failure,
    how: str,
    details: tuple[Payload, ...] = (),
) -> None:
    """Retry after a failed attempt, or close the activity when its policy allows no more.

    Args:
        change: What is being built.
        activity: The activity, started.
        failure: Of what it failed.
        how: failed, canceled, or timed_out:<timeout type>.
        details: The newest heartbeat details, for the next attempt.
    """
    attempts = ended(change, activity, how)
    delay_ms, retry_state = _next_delay(activity, failure, change.at_us)
    if delay_ms is not None:
        change.after.activities[activity.command_id] = msgspec.structs.replace(
            activity,
            state="backoff",
            claim_token="",
            worker="",
            due_us=change.at_us + delay_ms * 1_000,
            queued_us=change.at_us + delay_ms * 1_000,
            heartbeat_details=details or activity.heartbeat_details,
            last_failure=kept_failure(failure),
            attempts=attempts,
        )
        return
    change.after.activities.pop(activity.command_id)
    if how.startswith("timed_out:"):
        change.append(
            ActivityTaskTimedOut(
                command_id=activity.command_id,
                timeout_type=failure.timeout_type,
                failure=failure,
                retry_state=retry_state,
                attempts=attempts,
            )
        )
    else:
        change.append(
            ActivityTaskFailed(
                command_id=activity.command_id,
                failure=failure,
                retry_state=retry_state,
                attempts=attempts,
            )
        )


def _next_delay(activity: PendingActivity, failure: Failure, at_us: int) -> tuple[int | None, str]:
    """Return the wait before the next attempt in ms, or None and why there is none."""
    policy = activity.retry_policy
    if activity.cancel_requested:
        return None, "cancel_requested"
    if failure.non_retryable or not policy.allows(failure.type):
        return None, "non_retryable"
    delay_ms = delay_after_ms(activity.attempt, policy)
    if delay_ms is None:
        return None, "max_attempts"
    if failure.next_retry_delay_ms is not None:
        delay_ms = max(0, min(failure.next_retry_delay_ms, RETRY_DELAY_MS_MAX))
    if activity.schedule_to_close_ms is not None:
        ends_us = activity.scheduled_us + activity.schedule_to_close_ms * 1_000
        if at_us + delay_ms * 1_000 >= ends_us:
            return None, "timeout"
    return delay_ms, ""
