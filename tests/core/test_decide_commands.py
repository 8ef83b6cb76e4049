"""What commands lead to, and which of them cannot be recorded."""

from __future__ import annotations

import pytest

from odin.core import commands as c
from odin.core import events as e
from odin.core.bad_commands import DURATION_MS_MAX, PENDING_MAX, why_bad
from odin.core.execution import unpack_values
from odin.core.payload import Failure, encode
from tests.core.decide_world import SECOND_US, START_US, World, activity, complete, timer


def started(**fields: object) -> World:
    world = World()
    world.start(**fields)
    return world


def test_an_activity_is_pending_published_and_due_again_after_ten_seconds() -> None:
    world = World().with_activity(task_queue="cards", input=(encode(5),), heartbeat_ms=2_000)
    [task] = world.last.tasks
    assert (task.destination, task.entry.number, task.entry.attempt) == ("a:cards", 1, 1)
    pending = world.run.activities[1]
    assert (pending.state, pending.attempt) == ("scheduled", 0)
    assert pending.due_us == world.now_us + 10 * SECOND_US
    event = world.events[pending.scheduled_event_id - 1]
    assert isinstance(event, e.ActivityTaskScheduled)
    assert (event.input, event.heartbeat_ms, event.start_to_close_ms) == (
        (encode(5),),
        2_000,
        60_000,
    )


def test_a_canceled_timer_is_gone_and_one_that_is_not_pending_is_recorded_all_the_same() -> None:
    world = started()
    world.report(timer(1), c.CancelTimer(command_id=1), c.CancelTimer(command_id=9))
    assert world.types[2:] == ["timer_started", "timer_canceled", "timer_canceled"]
    assert world.run.timers == {}
    world.wait(10)
    assert world.due() is None


@pytest.mark.parametrize(
    ("command", "status", "kind"),
    [
        (complete(), "completed", e.WorkflowExecutionCompleted),
        (c.FailWorkflow(failure=Failure("no")), "failed", e.WorkflowExecutionFailed),
        (c.CancelWorkflow(details=(encode(1),)), "canceled", e.WorkflowExecutionCanceled),
        (c.ContinueAsNew(), "continued_as_new", e.WorkflowExecutionContinuedAsNew),
    ],
)
def test_a_closing_command_ends_the_run_and_leaves_nothing_pending(
    command: c.Command, status: str, kind: type[e.Event]
) -> None:
    world = World().with_activity()
    world.claim()
    world.signal()
    first = world.latest
    outcome = world.report(activity(2), timer(3), command)
    run = world.executions[first]
    assert (run.status, run.closed_us) == (status, world.now_us)
    assert isinstance(e.from_history(world.histories[first][-1]), kind)
    assert (run.activities, run.timers) == ({}, {})
    assert outcome.decision is not None
    assert outcome.decision.tasks == ()
    assert [one.claim_token for one in outcome.decision.stopped] == ["c1"]


# --- cancelling activities ----------------------------------------------------------------------


def test_without_wait_an_activity_is_canceled_at_once_and_nobody_is_woken() -> None:
    world = World().with_activity()
    world.claim()
    world.wait(1)
    world.signal()
    outcome = world.report(c.RequestCancelActivity(command_id=1))
    assert world.types[-2:] == ["activity_task_cancel_requested", "activity_task_canceled"]
    assert world.run.workflow_task.state == "none"
    assert outcome.decision is not None
    assert [(one.claim_token, one.reason) for one in outcome.decision.stopped] == [
        ("c1", "canceled")
    ]
    assert world.finish() is None, "its result comes too late"


def test_the_attempt_that_ran_stands_in_the_closing_event_of_a_canceled_activity() -> None:
    world = World().with_activity()
    world.claim()
    world.wait(1)
    world.fail()
    world.wait(1)
    world.due()
    world.claim(1, "c2")
    world.signal()
    world.report(c.RequestCancelActivity(command_id=1))
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskCanceled)
    assert [(one.claim_token, one.how) for one in event.attempts] == [
        ("c1", "failed"),
        ("c2", "canceled"),
    ]


def test_with_wait_a_running_activity_ends_the_wait_itself() -> None:
    world = World().with_activity()
    world.claim()
    world.signal()
    outcome = world.report(c.RequestCancelActivity(command_id=1, wait=True))
    assert outcome.decision is not None
    assert [one.reason for one in outcome.decision.stopped] == ["canceled"]
    assert world.run.activities[1].cancel_requested
    assert world.run.workflow_task.state == "none"


@pytest.mark.parametrize("state", ["scheduled", "backoff"])
def test_with_wait_an_activity_that_nobody_runs_is_canceled_with_the_request(state: str) -> None:
    world = World().with_activity()
    if state == "backoff":
        world.claim()
        world.fail()
    world.signal()
    outcome = world.report(c.RequestCancelActivity(command_id=1, wait=True), timer(2))
    assert world.types[-3:] == [
        "activity_task_cancel_requested",
        "timer_started",
        "activity_task_canceled",
    ]
    event = world.events[-1]
    assert isinstance(event, e.ActivityTaskCanceled)
    assert len(event.attempts) == (state == "backoff")
    assert world.run.workflow_task.state == "scheduled", "whoever awaits it learns so"
    assert outcome.decision is not None
    assert outcome.decision.stopped == ()


def test_a_cancel_with_wait_before_the_end_of_the_run_adds_nothing_after_it() -> None:
    world = World().with_activity()
    world.signal()
    world.report(c.RequestCancelActivity(command_id=1, wait=True), complete())
    assert world.types[-1] == "workflow_execution_completed"


def test_canceling_what_has_ended_is_recorded_and_does_nothing() -> None:
    world = World().with_activity()
    world.claim()
    world.finish()
    outcome = world.report(c.RequestCancelActivity(command_id=1, wait=True))
    assert world.types[-1] == "activity_task_cancel_requested"
    assert outcome.decision is not None
    assert outcome.decision.stopped == ()


# --- continue-as-new ----------------------------------------------------------------------------


def test_the_successor_begins_in_the_same_decision_and_keeps_the_chain() -> None:
    world = started(
        execution_timeout_ms=60_000,
        run_timeout_ms=20_000,
        task_timeout_ms=7_000,
        origin="visitors",
        memo={"note": encode("x")},
        search_attributes={"city": encode("Rome")},
    )
    first = world.latest
    world.run.parent = b"parent"
    world.wait(5)
    outcome = world.report(c.ContinueAsNew(input=(encode(2),)))
    decision = outcome.decision
    assert decision is not None
    [begun] = decision.also
    ended, run = world.executions[first], world.run
    assert begun.is_new
    assert (ended.status, run.status) == ("continued_as_new", "running")
    event = e.from_history(world.histories[first][-1])
    assert isinstance(event, e.WorkflowExecutionContinuedAsNew)
    assert event.new_run_id == run.run_id
    assert (run.workflow_id, run.first_run_id) == (ended.workflow_id, first)
    assert run.execution_deadline_us == START_US + 60 * SECOND_US, "the chain's, kept"
    assert run.run_deadline_us == world.now_us + 20 * SECOND_US, "the run's, anew"
    assert (run.task_timeout_ms, run.origin, run.parent) == (7_000, "visitors", b"parent")
    assert unpack_values(run.memo) == {"note": encode("x")}
    assert unpack_values(run.search_attributes) == {"city": encode("Rome")}
    assert [task.entry.run_id for task in begun.tasks] == [run.run_id]
    started_event = world.events[0]
    assert isinstance(started_event, e.WorkflowExecutionStarted)
    assert started_event.continued_from_run_id == first
    assert (started_event.input, started_event.memo) == ((encode(2),), {"note": encode("x")})
    assert run.state_token != ended.state_token


def test_a_successor_may_change_type_queue_timeout_and_memo() -> None:
    world = started(memo={"note": encode("x")})
    world.report(
        c.ContinueAsNew(workflow_type="refund", task_queue="late", run_timeout_ms=1_000, memo={})
    )
    run = world.run
    assert (run.workflow_type, run.task_queue, run.memo) == ("refund", "late", None)
    assert run.run_deadline_us == world.now_us + SECOND_US
    assert world.last.also[0].tasks[0].destination == "w:late"


def test_a_successor_begins_no_earlier_than_its_predecessor_ended() -> None:
    world = started()
    world.wait(30)
    world.signal()
    world.wait(-20)
    grant = world.grant()
    world.report(c.ContinueAsNew(), grant=grant)
    assert world.run.started_us == world.run.last_event_us == START_US + 30 * SECOND_US


def test_a_third_run_still_names_the_first() -> None:
    world = started()
    first = world.latest
    for _ in range(2):
        world.report(c.ContinueAsNew())
    assert world.run.first_run_id == first
    assert len(world.executions) == 3


# --- commands that cannot be recorded ------------------------------------------------------------


BAD: list[tuple[tuple[c.Command, ...], str]] = [
    ((complete(), timer(1)), "closes the run, but 1 follow it"),
    ((timer(1), timer(1)), "command id 1 was used before"),
    ((activity(0),), "command id 0 was used before"),
    ((activity(1), activity(2, activity_id="1")), "activity with the id '1' is pending"),
    ((activity(1, start_to_close_ms=None),), "needs start_to_close"),
    ((activity(1, task_queue="no\x00queue"),), "task_queue"),
    ((activity(1, activity_id=""),), "activity_id"),
    ((activity(1, start_to_close_ms=-1),), "start_to_close of -1 ms"),
    ((activity(1, schedule_to_close_ms=DURATION_MS_MAX + 1),), "schedule_to_close of"),
    ((activity(1, schedule_to_start_ms=-1),), "schedule_to_start of -1"),
    ((activity(1, heartbeat_ms=-5),), "heartbeat of -5"),
    ((timer(1, -1),), "duration of -1000 ms"),
    ((c.StartTimer(command_id=1, duration_ms=2**63),), "duration of"),
    ((c.ContinueAsNew(workflow_type="a b"),), "workflow_type"),
    ((c.ContinueAsNew(task_queue="a\nb"),), "task_queue"),
    ((c.ContinueAsNew(run_timeout_ms=-1),), "run_timeout of -1"),
    (tuple(timer(n) for n in range(1, PENDING_MAX + 2)), "start fewer at once"),
    (tuple(activity(n) for n in range(1, PENDING_MAX + 2)), "start fewer at once"),
]


@pytest.mark.parametrize(("issued", "why"), BAD, ids=[why for _, why in BAD])
def test_commands_that_cannot_be_recorded_fail_the_task_visibly_and_whole(
    issued: tuple[c.Command, ...], why: str
) -> None:
    world = started()
    outcome = world.report(*issued)
    assert outcome.refused == "failed"
    assert world.types == ["workflow_execution_started"]
    task = world.run.workflow_task
    assert (task.state, task.failures) == ("backoff", 1)
    assert task.last_failure is not None
    assert task.last_failure.type == "BadCommands"
    assert why in task.last_failure.message


def test_bad_commands_reported_twice_count_once() -> None:
    world = started()
    grant = world.grant()
    world.report(timer(0), grant=grant, report_id="r1")
    for wait in (0, 1):
        world.wait(wait)
        world.due()
        again = world.report(timer(0), grant=grant, report_id="r1")
        assert (again.refused, again.decision) == ("failed", None)
    assert world.run.workflow_task.failures == 1


def test_what_can_be_recorded_is_not_called_bad() -> None:
    world = World().with_activity()
    good: list[c.Command] = [
        c.RequestCancelActivity(command_id=1),
        activity(2, activity_id="1"),
        activity(3, start_to_close_ms=None, schedule_to_close_ms=5),
        activity(4, start_to_close_ms=None, heartbeat_ms=5),
        timer(5, 0),
        c.CancelTimer(command_id=5),
        c.ContinueAsNew(workflow_type="refund", task_queue="late", run_timeout_ms=5),
    ]
    assert why_bad(world.run, good) is None
    assert why_bad(world.run, ()) is None


def test_a_command_id_of_an_earlier_task_is_used() -> None:
    world = started()
    world.report(timer(5))
    world.signal()
    assert world.report(timer(5)).refused == "failed"


def test_pending_activities_of_earlier_tasks_count() -> None:
    world = started()
    world.report(*(activity(n) for n in range(1, PENDING_MAX + 1)))
    world.signal()
    grant = world.grant()
    assert world.report(activity(PENDING_MAX + 1), grant=grant).refused == "failed"
    more: list[c.Command] = [c.RequestCancelActivity(command_id=1), activity(PENDING_MAX + 1)]
    assert world.report(*more, grant=grant).accepted is not None
