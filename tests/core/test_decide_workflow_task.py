"""The life of a workflow task: scheduled, reported, refused, failed, published again."""

from __future__ import annotations

import pytest

from odin.core import commands as c
from odin.core import events as e
from odin.core.decide_workflow import TIME_AHEAD_US_MAX, is_task_wanted
from odin.core.execution import REPORTS_KEPT_MAX, AcceptedReport
from odin.core.payload import Failure
from tests.core.decide_world import SECOND_US, START_US, Grant, World, activity, complete, timer

CLOSING: tuple[c.Command, ...] = (
    complete(),
    c.FailWorkflow(failure=Failure("no")),
    c.CancelWorkflow(),
    c.ContinueAsNew(),
)


def started(**fields: object) -> World:
    world = World()
    world.start(**fields)
    return world


def test_an_accepted_report_is_one_event_for_the_task_and_one_per_command() -> None:
    world = started()
    outcome = world.report(activity(1), timer(2))
    assert world.types[1:] == [
        "workflow_task_completed",
        "activity_task_scheduled",
        "timer_started",
    ]
    completed = world.events[1]
    assert isinstance(completed, e.WorkflowTaskCompleted)
    assert (completed.seen, completed.worker, completed.build_id) == (1, "w1", "build-1")
    assert completed.task_number == 1
    assert world.run.workflow_task.state == "none"
    assert outcome.accepted is not None
    assert outcome.accepted.last_event_id == 4
    assert outcome.accepted.token == world.run.state_token == world.run.task_token


def test_the_recorded_time_is_the_one_that_the_worker_used() -> None:
    world = started()
    grant = world.grant()
    world.wait(3)
    world.report(timer(1, 5), grant=grant)
    completed, begun = world.events[1:]
    assert isinstance(completed, e.WorkflowTaskCompleted)
    assert isinstance(begun, e.TimerStarted)
    assert completed.time_us == START_US
    assert begun.fires_at_us == START_US + 5 * SECOND_US


def test_a_repeated_report_gets_the_answer_of_its_own_batch() -> None:
    world = started()
    grant = world.grant()
    first = world.report(activity(1), grant=grant, report_id="r1")
    world.signal()
    again = world.report(activity(1), grant=grant, report_id="r1")
    assert again.accepted == first.accepted
    assert again.decision is None


def test_a_repeat_is_answered_after_the_run_has_closed_too() -> None:
    world = started()
    grant = world.grant()
    first = world.report(complete(), grant=grant, report_id="r1")
    assert world.report(complete(), grant=grant, report_id="r1").accepted == first.accepted
    other = world.report(complete(), grant=grant, report_id="r2")
    assert (other.refused, other.decision) == ("closed", None)


def test_the_last_report_of_each_worker_is_kept_of_four_workers() -> None:
    world = started()
    grants: dict[str, Grant] = {}
    for number in range(6):
        world.signal()
        grants[f"w{number}"] = world.grant()
        worker = f"w{number}"
        world.report(grant=grants[worker], worker=worker, report_id=worker)
    assert [one.worker for one in world.run.reports] == ["w2", "w3", "w4", "w5"]
    assert len(world.run.reports) == REPORTS_KEPT_MAX
    for worker, grant in grants.items():
        again = world.report(grant=grant, worker=worker, report_id=worker)
        assert (again.accepted is not None) == (worker in {"w2", "w3", "w4", "w5"})
    other = world.report(grant=grants["w5"], worker="w4", report_id="w5")
    assert other.refused == "stale", "a report id counts with its worker"


def test_events_appended_meanwhile_belong_to_the_next_task() -> None:
    world = started()
    grant = world.grant()
    world.signal()
    outcome = world.report(activity(1), grant=grant)
    assert outcome.accepted is not None
    assert outcome.accepted.seen == 1
    assert world.run.workflow_task.state == "scheduled"
    assert world.run.workflow_task.number == 2


def test_what_the_worker_has_seen_schedules_no_further_task() -> None:
    world = started()
    world.signal()
    world.report(activity(1))
    assert world.run.workflow_task.state == "none"


@pytest.mark.parametrize("closing", CLOSING)
@pytest.mark.parametrize("message", ["signal", "cancel"])
def test_a_closing_report_with_an_unseen_message_is_refused_whole_and_goes_round_at_once(
    closing: c.Command, message: str
) -> None:
    world = started()
    grant = world.grant()
    getattr(world, message)()
    outcome = world.report(activity(1), closing, grant=grant)
    assert outcome.refused == "unseen"
    assert world.run.is_open
    assert outcome.decision is not None
    assert outcome.decision.events == ()
    [task] = outcome.decision.tasks
    assert (task.entry.kind, task.entry.number) == ("w", 1)
    assert world.report(closing).accepted is not None, "with the larger batch it closes"


def test_a_result_unseen_by_the_closing_report_does_not_hold_it_up() -> None:
    world = World().with_activity()
    world.signal()
    grant = world.grant()
    world.claim()
    world.finish()
    assert world.report(complete(), grant=grant).accepted is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"task_token": 1},
        {"number": 2},
        {"number": 0},
        {"seen": 0},
        {"seen": 2},
        {"time_us": START_US + TIME_AHEAD_US_MAX + 1},
    ],
    ids=str,
)
def test_a_report_that_does_not_fit_is_stale_and_changes_nothing(changes: dict[str, int]) -> None:
    world = started()
    before = world.run
    outcome = world.report(complete(), changes=changes)
    assert (outcome.refused, outcome.decision) == ("stale", None)
    assert world.run is before


def test_a_report_without_a_pending_task_is_stale() -> None:
    world = started()
    grant = world.grant()
    world.report(grant=grant)
    held = Grant(1, world.run.task_token, 2, grant.time_us)
    assert world.report(grant=held).refused == "stale"


def test_the_time_of_a_task_never_goes_back() -> None:
    world = started()
    world.wait(5)
    world.report(timer(1, 1))
    world.signal()
    grant = world.grant()
    assert world.report(grant=grant, changes={"time_us": grant.time_us - 1}).refused == "stale"
    assert world.report(grant=grant).accepted is not None


def test_a_granted_time_stands_although_the_owners_estimate_lags_behind_the_history() -> None:
    world = started()
    world.wait(30)
    world.signal()
    world.wait(-20)
    assert world.report(grant=world.grant()).accepted is not None


def test_an_earlier_claimant_may_complete_a_task_that_went_to_another() -> None:
    world = started()
    grant = world.grant()
    world.wait(10)
    world.due()
    other = world.grant()
    assert world.report(activity(1), grant=grant, worker="w1").accepted is not None
    assert world.report(activity(1), grant=other, worker="w2").refused == "stale"


def test_a_due_task_is_published_again_with_doubled_spacing_up_to_ten_minutes() -> None:
    world = started()
    spacings = []
    for attempt in range(2, 11):
        wait_us = world.run.workflow_task.due_us - world.now_us
        spacings.append(wait_us // SECOND_US)
        world.now_us += wait_us - 1
        assert world.due() is None
        world.now_us += 1
        world.due()
        [task] = world.last.tasks
        assert (task.entry.number, task.entry.attempt) == (1, attempt)
    assert spacings == [10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_a_failed_task_waits_one_second_doubled_up_to_ten_minutes() -> None:
    world = started()
    waits = []
    for failures in range(1, 13):
        assert world.fail_task("bug") is not None
        task = world.run.workflow_task
        assert (task.state, task.failures) == ("backoff", failures)
        assert task.last_failure == Failure("bug", kind="worker")
        assert not is_task_wanted(world.run, 1), "claims before due are not wanted"
        waits.append((task.due_us - world.now_us) // SECOND_US)
        world.now_us = task.due_us
        world.due()
        assert is_task_wanted(world.run, 1)
        assert world.run.workflow_task.attempt == failures + 1
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert world.types == ["workflow_execution_started"], "a failed task leaves no event"


def test_the_task_after_a_failed_one_starts_afresh() -> None:
    world = started()
    world.fail_task()
    world.wait(1)
    world.due()
    grant = world.grant()
    world.signal()
    world.report(grant=grant)
    task = world.run.workflow_task
    assert (task.number, task.attempt, task.failures, task.last_failure) == (2, 1, 0, None)


def test_a_failure_reported_twice_counts_once() -> None:
    world = started()
    grant = world.grant()
    assert world.fail_task(grant=grant, report_id="r1") is not None
    world.wait(1)
    world.due()
    assert world.fail_task(grant=grant, report_id="r1") is None
    assert world.run.workflow_task.failures == 1
    assert world.fail_task(grant=grant, report_id="r2") is not None


def test_a_failure_of_another_task_changes_nothing() -> None:
    world = started()
    grant = world.grant()
    for other in (Grant(2, grant.task_token, 1, 1), Grant(1, 5, 1, 1)):
        assert world.fail_task(grant=other) is None
    world.terminate()
    assert world.fail_task(grant=grant) is None


def test_a_completion_is_accepted_while_the_task_waits_in_backoff() -> None:
    world = started()
    slow, broken = world.grant(), world.grant()
    world.fail_task(grant=broken)
    assert world.report(activity(1), grant=slow, worker="w2").accepted is not None


def test_the_next_task_of_a_warm_run_is_pushed_without_an_outbox_row() -> None:
    world = started()
    grant = world.grant()
    world.signal()
    world.sticky = True
    decision = world.report(grant=grant).decision
    assert decision is not None
    assert decision.push
    assert decision.tasks == ()
    assert world.run.workflow_task.due_us == world.now_us + 5 * SECOND_US


def test_a_pushed_task_goes_to_the_shared_queue_after_five_seconds() -> None:
    world = started()
    world.report()
    world.sticky = True
    assert world.signal().push
    world.wait(5)
    world.due()
    [task] = world.last.tasks
    assert (task.destination, task.entry.attempt) == ("w:default", 2)
    assert not world.last.push
    assert world.run.workflow_task.due_us == world.now_us + 10 * SECOND_US


def test_a_task_whose_claimant_is_gone_is_brought_back() -> None:
    world = started()
    decision = world.republish_task()
    assert decision is not None
    assert [task.entry.attempt for task in decision.tasks] == [1]
    world.sticky = True
    decision = world.republish_task()
    assert decision is not None
    assert decision.push
    world.report()
    assert world.republish_task() is None
    world.terminate()
    assert world.republish_task() is None


def test_only_the_scheduled_task_of_an_open_run_is_wanted() -> None:
    world = started()
    assert is_task_wanted(world.run, 1)
    assert not is_task_wanted(world.run, 2)
    world.report(complete())
    assert not is_task_wanted(world.run, 1)


def test_accepted_reports_keep_their_own_seen_and_token() -> None:
    world = started()
    outcome = world.report(report_id="r1")
    run = world.run
    assert run.reports == (AcceptedReport("w1", "r1", 1, 2, run.state_token),)
    assert outcome.accepted == run.reports[0]
