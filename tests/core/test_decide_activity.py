"""Activities: durable claims, results, retries, releases."""

from __future__ import annotations

from typing import Any

import pytest

from odin.core import commands as c
from odin.core import events as e
from odin.core.backoff import RetryPolicySpec
from odin.core.decide_activity import RETRY_DELAY_MS_MAX
from odin.core.execution import ATTEMPTS_KEPT_MAX
from odin.core.payload import encode
from odin.core.wire import ActivityOutcome
from tests.core.decide_world import SECOND_US, World

CANCELED = ActivityOutcome("canceled", details=(encode("why"),))


def with_activity(**fields: object) -> World:
    return World().with_activity(**fields)


# --- claims -------------------------------------------------------------------------------------


def test_a_claim_spends_an_attempt_and_starts_its_clocks() -> None:
    world = with_activity(start_to_close_ms=7_000)
    outcome = world.claim(1, "c1", "w1")
    held = world.run.activities[1]
    assert outcome.activity == held
    assert (held.state, held.attempt, held.claim_token, held.worker) == ("started", 1, "c1", "w1")
    assert held.started_us == world.now_us
    assert held.due_us == world.now_us + 7 * SECOND_US
    assert outcome.decision is not None
    assert outcome.decision.events == (), "a started attempt is no event"


def test_the_same_claim_token_gets_the_same_answer_and_spends_nothing() -> None:
    world = with_activity()
    first = world.claim(1, "c1", "w1")
    world.wait(1)
    again = world.claim(1, "c1", "w1", attempt=1)
    assert again.activity == first.activity
    assert again.decision is None
    assert world.run.activities[1].attempt == 1


def test_a_second_claimant_is_not_wanted() -> None:
    world = with_activity()
    world.claim(1, "c1", "w1")
    for attempt in (1, 2):
        assert world.claim(1, "c2", "w2", attempt=attempt).activity is None


@pytest.mark.parametrize("attempt", [0, 2])
def test_a_claim_of_another_attempt_is_not_wanted(attempt: int) -> None:
    world = with_activity()
    assert world.claim(1, "c1", attempt=attempt).activity is None


def test_nothing_is_claimed_in_backoff_of_an_unknown_activity_or_of_a_closed_run() -> None:
    world = with_activity()
    world.claim()
    world.fail()
    assert world.claim(1, "c2").activity is None
    assert world.claim(9, "c3").activity is None
    world.terminate()
    assert world.claim(1, "c4").activity is None


@pytest.mark.parametrize("limit", ["schedule_to_start_ms", "schedule_to_close_ms"])
def test_a_claim_after_the_activitys_time_is_not_wanted(limit: str) -> None:
    world = with_activity(**{limit: 3_000})
    world.wait(3)
    assert world.claim().activity is None
    world.wait(-0.001)
    assert world.claim().activity is not None


# --- results ------------------------------------------------------------------------------------


def test_a_result_ends_the_activity_wakes_the_workflow_and_lists_the_attempts() -> None:
    world = with_activity()
    world.claim()
    begun_us = world.now_us
    world.wait(2)
    world.finish()
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskCompleted)
    assert event.result == encode(42)
    [record] = event.attempts
    assert (record.attempt, record.claim_token, record.worker, record.how) == (
        1, "c1", "w1", "completed",
    )  # fmt: skip
    assert (record.started_us, record.ended_us) == (begun_us, world.now_us)
    assert world.run.workflow_task.state == "scheduled"
    assert world.run.activities == {}


def test_a_result_of_none_is_recorded_as_null() -> None:
    world = with_activity()
    world.claim()
    world.finish(outcome=ActivityOutcome("completed"))
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskCompleted)
    assert event.result == encode(None)


def test_nothing_of_a_result_with_an_invalid_claim_token_is_recorded() -> None:
    world = with_activity()
    assert world.finish(1, "c1") is None, "not claimed"
    world.claim(1, "c1")
    assert world.finish(1, "c2") is None
    assert world.finish(9, "c1") is None
    world.fail(1, "c1")
    assert world.finish(1, "c1") is None, "the attempt has ended"
    world.wait(1)
    world.due()
    world.claim(1, "c2")
    assert world.finish(1, "c1") is None, "superseded"
    world.finish(1, "c2")
    assert world.finish(1, "c2") is None, "recorded before"
    world.terminate()
    assert world.finish(1, "c2") is None


def test_a_result_is_recorded_by_a_later_owner_too() -> None:
    world = with_activity()
    world.claim()
    world.take_over()
    assert world.finish() is not None


def test_no_attempt_ends_before_it_began_whatever_a_new_owner_believes_of_the_time() -> None:
    """A claim leaves no event behind, so only the attempt tells how far time had come."""
    world = with_activity()
    world.wait(2)
    world.claim()
    started_us = world.run.activities[1].started_us
    world.wait(-0.3)
    world.take_over()
    decision = world.finish()
    assert decision is not None
    assert decision.events[0].recorded_at_us == started_us
    closing = world.events[-1]
    assert isinstance(closing, e.ActivityTaskCompleted)
    (ended,) = closing.attempts
    assert (ended.started_us, ended.ended_us) == (started_us, started_us)


def test_no_attempt_begins_before_the_one_before_it_ended() -> None:
    policy = RetryPolicySpec(initial_interval_ms=1)
    world = with_activity(retry_policy=policy)
    world.wait(2)
    world.claim(1, "c1")
    world.wait(1)
    world.fail(1, "c1")
    world.wait(1)
    world.due()
    world.wait(-1.5)
    world.take_over()
    world.claim(1, "c2")
    (first,) = world.run.activities[1].attempts
    assert world.run.activities[1].started_us == first.ended_us


# --- retries ------------------------------------------------------------------------------------


def test_a_failed_attempt_waits_as_its_policy_says_and_goes_out_again() -> None:
    world = with_activity(retry_policy=RetryPolicySpec(initial_interval_ms=500))
    for attempt, wait in enumerate((0.5, 1.0, 2.0), 1):
        world.claim(1, f"c{attempt}")
        decision = world.fail(1, f"c{attempt}")
        assert decision is not None
        assert decision.events == ()
        held = world.run.activities[1]
        assert (held.state, held.attempt, held.claim_token) == ("backoff", attempt, "")
        world.wait(wait - 0.001)
        assert world.due() is None
        world.wait(0.001)
        world.due()
        assert [task.entry.attempt for task in world.last.tasks] == [attempt + 1]
    assert world.types[-1] == "activity_task_scheduled", "attempts are no events"


@pytest.mark.parametrize("maximum", [1, 2, 3])
def test_the_activity_fails_after_its_last_attempt(maximum: int) -> None:
    world = with_activity(retry_policy=RetryPolicySpec(maximum_attempts=maximum))
    for attempt in range(1, maximum + 1):
        world.claim(1, f"c{attempt}")
        world.fail(1, f"c{attempt}")
        world.wait(10)
        world.due()
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskFailed)
    assert event.retry_state == "max_attempts"
    assert [one.attempt for one in event.attempts] == list(range(1, maximum + 1))
    assert world.run.workflow_task.state == "scheduled"


@pytest.mark.parametrize("fields", [{"non_retryable": True}, {"type": "Fatal"}], ids=str)
def test_a_failure_that_is_not_to_be_retried_ends_the_activity(fields: dict[str, Any]) -> None:
    world = with_activity(retry_policy=RetryPolicySpec(non_retryable_error_types=("Fatal",)))
    world.claim()
    world.fail(**fields)
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskFailed)
    assert event.retry_state == "non_retryable"


@pytest.mark.parametrize(
    ("asked_ms", "waited_ms"),
    [(30_000, 30_000), (0, 0), (-5, 0), (2**62, RETRY_DELAY_MS_MAX)],
)
def test_a_failure_may_ask_for_its_own_delay_within_reason(asked_ms: int, waited_ms: int) -> None:
    world = with_activity()
    world.claim()
    world.fail(next_retry_delay_ms=asked_ms)
    assert world.run.activities[1].due_us == world.now_us + waited_ms * 1_000


def test_an_own_delay_gives_no_attempt_beyond_the_last() -> None:
    world = with_activity(retry_policy=RetryPolicySpec.once())
    world.claim()
    world.fail(next_retry_delay_ms=1)
    assert world.types[-1] == "activity_task_failed"


def test_a_retry_that_would_not_fit_into_schedule_to_close_fails_now() -> None:
    world = with_activity(schedule_to_close_ms=5_000)
    world.claim(1, "c1")
    world.wait(3.9)
    world.fail(1, "c1")
    assert world.run.activities[1].state == "backoff"
    world.wait(1)
    world.due()
    world.claim(1, "c2")
    world.fail(1, "c2")
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskFailed)
    assert event.retry_state == "timeout"


def test_heartbeat_details_go_to_the_next_attempt_and_stay_until_there_are_newer() -> None:
    world = with_activity()
    world.claim(1, "c1")
    outcome = ActivityOutcome("failed")
    world.finish(1, "c1", outcome, details=(encode("half"),))
    world.wait(1)
    world.due()
    second = world.claim(1, "c2").activity
    assert second is not None
    assert second.heartbeat_details == (encode("half"),)
    world.finish(1, "c2", outcome)
    assert world.run.activities[1].heartbeat_details == (encode("half"),)


def test_a_failure_without_words_gets_some() -> None:
    world = with_activity()
    world.claim()
    world.finish(outcome=ActivityOutcome("failed"))
    failure = world.run.activities[1].last_failure
    assert failure is not None
    assert failure.message == "the worker stopped the attempt"


def test_of_endless_attempts_the_newest_two_hundred_are_kept() -> None:
    world = with_activity(
        retry_policy=RetryPolicySpec(initial_interval_ms=1, maximum_interval_ms=1)
    )
    for attempt in range(1, ATTEMPTS_KEPT_MAX + 4):
        world.claim(1, f"c{attempt}")
        world.fail(1, f"c{attempt}")
        world.wait(0.001)
        world.due()
    kept = [one.attempt for one in world.run.activities[1].attempts]
    assert kept == list(range(4, ATTEMPTS_KEPT_MAX + 4))


# --- cancellation -------------------------------------------------------------------------------


def asked_to_stop() -> World:
    world = with_activity()
    world.claim()
    world.signal()
    world.report(c.RequestCancelActivity(command_id=1, wait=True))
    return world


def test_an_activity_that_was_asked_to_stop_ends_as_canceled() -> None:
    world = asked_to_stop()
    world.finish(outcome=CANCELED)
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskCanceled)
    assert event.details == (encode("why"),)
    assert [one.how for one in event.attempts] == ["canceled"]
    assert world.run.workflow_task.state == "scheduled"


def test_an_activity_that_was_asked_to_stop_may_still_complete() -> None:
    world = asked_to_stop()
    world.finish()
    assert world.types[-1] == "activity_task_completed"


def test_an_activity_that_was_asked_to_stop_is_not_tried_again() -> None:
    world = asked_to_stop()
    world.fail()
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskFailed)
    assert event.retry_state == "cancel_requested"


def test_a_timeout_ends_an_activity_that_was_asked_to_stop() -> None:
    world = asked_to_stop()
    world.wait(60)
    world.due()
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskTimedOut)
    assert (event.timeout_type, event.retry_state) == ("start_to_close", "cancel_requested")


def test_an_attempt_canceled_unasked_is_a_lost_attempt() -> None:
    world = with_activity()
    world.claim()
    world.finish(outcome=CANCELED)
    held = world.run.activities[1]
    assert held.state == "backoff"
    assert [one.how for one in held.attempts] == ["canceled"]


# --- releases and republishing ------------------------------------------------------------------


def test_a_released_activity_goes_out_again_after_its_delay_and_spends_no_attempt() -> None:
    world = with_activity()
    decision = world.release(delay_ms=700)
    assert decision is not None
    assert decision.tasks == ()
    world.wait(0.699)
    assert world.due() is None
    world.wait(0.001)
    world.due()
    assert [task.entry.attempt for task in world.last.tasks] == [1]
    assert world.run.activities[1].due_us == world.now_us + 10 * SECOND_US


def test_a_release_never_outlasts_the_activity() -> None:
    world = with_activity(schedule_to_start_ms=300)
    world.release(delay_ms=5_000)
    world.wait(0.3)
    world.due()
    assert world.types[-1] == "activity_task_timed_out"


def test_only_the_waiting_attempt_can_be_released() -> None:
    world = with_activity()
    assert world.release(9) is None
    assert world.release(1, attempt=2) is None
    world.claim()
    assert world.release(1, attempt=1) is None
    assert world.release(1, attempt=2) is None
    world.terminate()
    assert world.release(1) is None


def test_a_new_owner_publishes_only_what_waits() -> None:
    world = with_activity()
    decision = world.republish_activities(1, 9)
    assert decision is not None
    assert [(task.entry.number, task.entry.attempt) for task in decision.tasks] == [(1, 1)]
    world.claim()
    assert world.republish_activities(1) is None
