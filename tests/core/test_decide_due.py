"""Time: deadlines, timers, timeouts, heartbeats, the grace of a new term."""

from __future__ import annotations

import pytest

from odin.core import events as e
from odin.core.backoff import RetryPolicySpec
from odin.core.decide_due import Liveness, next_due_us
from odin.core.execution import due_us
from odin.core.payload import Failure, encode
from tests.core.decide_world import SECOND_US, World, activity, timer

ONCE = RetryPolicySpec.once()


def running(**fields: object) -> World:
    """Return a world with one started attempt."""
    world = World().with_activity(**fields)
    assert world.claim().activity is not None
    return world


def timed_out(world: World) -> e.ActivityTaskTimedOut:
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskTimedOut), event
    return event


# --- the run ------------------------------------------------------------------------------------


def test_nothing_is_due_of_a_run_that_waits_or_is_closed() -> None:
    world = World()
    world.start()
    world.report()
    assert (due_us(world.run), next_due_us(world.run, world.liveness)) == (None, None)
    world.wait(10**6)
    assert world.due() is None
    world.terminate()
    assert world.due() is None
    assert next_due_us(world.run, world.liveness) is None


@pytest.mark.parametrize(
    ("run_ms", "execution_ms", "expected"),
    [(2_000, None, "run"), (None, 2_000, "execution"), (2_000, 9_000, "run"),
     (3_000, 2_000, "execution"), (2_000, 2_000, "execution"), (2_000, 3_000, "run")],
)  # fmt: skip
def test_a_deadline_ends_the_run_and_names_the_one_that_passed_first(
    run_ms: int | None, execution_ms: int | None, expected: str
) -> None:
    world = World()
    world.start(run_timeout_ms=run_ms, execution_timeout_ms=execution_ms)
    world.wait(1.999_999)
    assert world.due() is None
    world.wait(3)
    world.due()
    event = world.events[-1]
    assert isinstance(event, e.WorkflowExecutionTimedOut)
    assert event.timeout_type == expected
    assert world.run.status == "timed_out"


def test_a_deadline_ends_the_run_before_a_timer_of_the_same_instant_fires() -> None:
    world = World()
    world.start(run_timeout_ms=5_000)
    world.report(timer(1, 5), timer(2, 1))
    world.wait(5)
    world.due()
    assert world.types[-1] == "workflow_execution_timed_out"
    assert "timer_fired" not in world.types


def test_a_deadline_stops_the_attempts_that_run() -> None:
    world = World()
    world.start(run_timeout_ms=5_000)
    world.report(activity(1))
    world.claim()
    world.wait(5)
    decision = world.due()
    assert decision is not None
    assert [one.claim_token for one in decision.stopped] == ["c1"]


# --- timers -------------------------------------------------------------------------------------


def test_timers_fire_in_the_order_of_their_times_then_of_their_ids_and_never_early() -> None:
    world = World()
    world.start()
    world.report(timer(1, 3), timer(2, 1), timer(3, 2), timer(4, 1), timer(5, 9))
    world.wait(0.999_999)
    assert world.due() is None, "not a microsecond early"
    world.wait(2.000_001)
    decision = world.due()
    assert decision is not None
    fired = [event.command_id for event in world.events if isinstance(event, e.TimerFired)]
    assert fired == [2, 4, 3, 1]
    assert len(decision.tasks) == 1, "one workflow task for all of them"
    assert list(world.run.timers) == [5]


def test_a_timer_is_not_delayed_by_the_grace_of_a_new_term() -> None:
    world = World()
    world.start()
    world.report(timer(1, 1))
    world.wait(1)
    world.take_over()
    world.due()
    assert world.types[-1] == "timer_fired"


# --- timeouts of activities that wait -----------------------------------------------------------


def test_an_activity_that_nobody_takes_is_published_with_doubled_spacing_up_to_ten_minutes() -> (
    None
):
    world = World().with_activity()
    spacings = []
    for _ in range(9):
        wait_us = world.run.activities[1].due_us - world.now_us
        spacings.append(wait_us // SECOND_US)
        world.now_us += wait_us - 1
        assert world.due() is None
        world.now_us += 1
        world.due()
        assert [task.entry.attempt for task in world.last.tasks] == [1]
    assert spacings == [10, 20, 40, 80, 160, 320, 600, 600, 600]


@pytest.mark.parametrize("kind", ["schedule_to_start", "schedule_to_close"])
def test_an_activity_that_nobody_takes_in_time_is_timed_out_and_not_retried(kind: str) -> None:
    world = World().with_activity(**{f"{kind}_ms": 4_000})
    world.wait(3.999)
    assert world.due() is None
    world.wait(0.001)
    world.due()
    event = timed_out(world)
    assert (event.timeout_type, event.retry_state, event.attempts) == (kind, "timeout", ())
    assert event.failure.timeout_type == kind
    assert world.run.workflow_task.state == "scheduled"


def test_schedule_to_start_counts_anew_for_each_attempt_and_not_the_backoff() -> None:
    world = World().with_activity(schedule_to_start_ms=2_000)
    world.wait(1.5)
    world.claim()
    world.fail(next_retry_delay_ms=5_000)
    world.wait(5)
    world.due()
    assert world.run.activities[1].state == "scheduled"
    world.wait(1.999)
    assert world.due() is None
    world.wait(0.001)
    world.due()
    assert timed_out(world).timeout_type == "schedule_to_start"


def test_a_retry_published_late_still_has_its_whole_schedule_to_start() -> None:
    world = World().with_activity(schedule_to_start_ms=2_000)
    world.claim()
    world.fail()
    world.wait(60)
    world.due()
    assert world.run.activities[1].state == "scheduled"
    world.wait(1.9)
    assert world.claim(1, "c2").activity is not None


# --- timeouts of started attempts ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["start_to_close", "heartbeat"])
def test_an_attempt_out_of_time_is_retried_and_its_worker_told_to_stop(kind: str) -> None:
    world = running(**{f"{kind}_ms": 4_000})
    world.wait(3.999)
    assert world.due() is None
    world.wait(0.001)
    decision = world.due()
    assert decision is not None
    assert decision.events == (), "an attempt that has a successor is no event"
    assert [(one.claim_token, one.reason) for one in decision.stopped] == [("c1", "timed out")]
    held = world.run.activities[1]
    assert (held.state, held.attempt) == ("backoff", 1)
    assert [one.how for one in held.attempts] == [f"timed_out:{kind}"]
    assert world.finish() is None, "its result comes too late"


def test_the_last_attempt_out_of_time_closes_the_activity() -> None:
    world = running(start_to_close_ms=4_000, retry_policy=ONCE)
    world.wait(4)
    world.due()
    event = timed_out(world)
    assert (event.timeout_type, event.retry_state) == ("start_to_close", "max_attempts")
    assert [one.how for one in event.attempts] == ["timed_out:start_to_close"]
    assert (
        event.failure.message == "activity charge exceeded its start_to_close timeout in attempt 1"
    )


def test_schedule_to_close_ends_a_running_activity_for_good() -> None:
    world = running(schedule_to_close_ms=4_000, start_to_close_ms=4_000)
    world.wait(4)
    decision = world.due()
    assert decision is not None
    assert [one.reason for one in decision.stopped] == ["timed out"]
    event = timed_out(world)
    assert (event.timeout_type, event.retry_state) == ("schedule_to_close", "timeout")
    assert [one.how for one in event.attempts] == ["timed_out:schedule_to_close"]


def test_a_timeout_says_what_went_wrong_before() -> None:
    world = running(start_to_close_ms=4_000, retry_policy=RetryPolicySpec(maximum_attempts=2))
    world.fail(message="first")
    world.wait(1)
    world.due()
    world.claim(1, "c2")
    world.wait(4)
    world.due()
    cause = timed_out(world).failure.cause
    assert cause is not None
    assert cause.message == "first"


def test_timeouts_do_not_nest_in_one_another_however_many_there_are() -> None:
    world = running(start_to_close_ms=1_000)
    world.fail(message="first")
    for attempt in range(2, 12):
        world.wait(200)
        world.due()
        world.claim(1, f"c{attempt}")
        world.wait(1)
        world.due()
    failure = world.run.activities[1].last_failure
    assert failure is not None
    assert failure.cause == Failure("first", type="Broken")


# --- heartbeats and the grace -------------------------------------------------------------------


def test_each_heartbeat_begins_the_wait_for_the_next() -> None:
    world = running(heartbeat_ms=2_000)
    for _ in range(5):
        world.wait(1.9)
        assert world.due() is None
        world.beat(1, "part")
    world.wait(2)
    world.due()
    held = world.run.activities[1]
    assert [one.how for one in held.attempts] == ["timed_out:heartbeat"]
    assert held.heartbeat_details == (encode("part"),), "the next attempt goes on from there"


def test_heartbeats_do_not_extend_start_to_close() -> None:
    world = running(heartbeat_ms=2_000, start_to_close_ms=3_000)
    world.wait(1.9)
    world.beat()
    world.wait(1.1)
    world.due()
    assert [one.how for one in world.run.activities[1].attempts] == ["timed_out:start_to_close"]


def test_a_heartbeat_alone_bounds_an_attempt() -> None:
    world = running(start_to_close_ms=None, heartbeat_ms=2_000)
    assert world.run.activities[1].due_us == world.now_us + 2 * SECOND_US
    world.wait(2)
    world.due()
    assert world.run.activities[1].state == "backoff"


def test_in_the_grace_of_a_new_term_no_started_attempt_is_judged() -> None:
    world = running(start_to_close_ms=1_000, heartbeat_ms=500)
    world.wait(1)
    world.take_over()
    world.wait(4.999)
    assert world.due() is None
    assert world.finish() is not None, "healthy work is not lost by a takeover"


def test_after_the_grace_an_attempt_out_of_time_is_judged() -> None:
    world = running(start_to_close_ms=1_000)
    world.wait(1)
    world.take_over()
    world.wait(5)
    world.due()
    assert world.run.activities[1].state == "backoff"


def test_heartbeat_clocks_begin_anew_with_the_term() -> None:
    world = running(heartbeat_ms=8_000)
    world.wait(7)
    world.take_over()
    world.wait(7.999)
    assert world.due() is None
    world.wait(0.001)
    world.due()
    assert world.run.activities[1].state == "backoff"


def test_liveness_looks_at_waiting_activities_when_the_row_says() -> None:
    world = World().with_activity()
    held = world.run.activities[1]
    assert Liveness(grace_until_us=2**60).due_us(held) == held.due_us


def test_the_rows_bound_is_never_later_than_what_memory_knows() -> None:
    world = running(heartbeat_ms=2_000)
    world.wait(1)
    world.beat()
    row, known = due_us(world.run), next_due_us(world.run, world.liveness)
    assert row is not None
    assert known == world.now_us + 2 * SECOND_US
    assert row < known
