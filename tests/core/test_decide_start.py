"""What clients ask: start, signal, cancel, terminate."""

from __future__ import annotations

import pytest

from odin.core import commands as c
from odin.core import events as e
from odin.core import requests as q
from odin.core.decide import Acknowledged
from odin.core.decide_client import SIGNALS_MAX
from odin.core.execution import Execution, due_us, unpack_values
from odin.core.payload import Failure, encode
from odin.errors import FailedPreconditionError, RunClosedError, WorkflowAlreadyStartedError
from tests.core.decide_world import HASH, SECOND_US, START_US, World, activity, complete

CLOSED = ("completed", "failed", "canceled", "terminated", "timed_out")


def closed_as(status: str) -> World:
    """Return a world whose run has ended so."""
    world = World()
    world.start(run_timeout_ms=60_000)
    if status == "terminated":
        world.terminate()
    elif status == "timed_out":
        world.wait(60)
        world.due()
    else:
        closing: dict[str, c.Command] = {
            "completed": complete(),
            "failed": c.FailWorkflow(failure=Failure("no")),
            "canceled": c.CancelWorkflow(),
        }
        world.report(closing[status])
    assert world.run.status == status
    return world


def test_a_start_writes_its_event_its_task_its_request_and_its_outbox_row_at_once() -> None:
    world = World()
    outcome = world.start(request_id="r1", input=(encode(1),), origin="visitors")
    decision = outcome.decision
    assert outcome.started
    assert decision.is_new
    assert world.types == ["workflow_execution_started"]
    assert decision.acknowledged == Acknowledged("r1", "start", outcome.run_id, 1, HASH)
    [task] = decision.tasks
    assert task.destination == "w:default"
    assert (task.entry.run_id, task.entry.number, task.entry.attempt) == (outcome.run_id, 1, 1)
    assert task.entry.range_id == world.range_id
    [started] = world.events
    assert isinstance(started, e.WorkflowExecutionStarted)
    assert started.input == (encode(1),)
    assert started.seed != 0
    assert world.run.origin == started.origin == "visitors"


def test_deadlines_count_from_the_start_and_bound_the_row() -> None:
    world = World()
    world.start(run_timeout_ms=2_000, execution_timeout_ms=3_000, task_timeout_ms=60_000)
    assert world.run.run_deadline_us == START_US + 2 * SECOND_US
    assert world.run.execution_deadline_us == START_US + 3 * SECOND_US
    assert due_us(world.run) == START_US + 2 * SECOND_US


def test_a_start_delay_postpones_only_the_first_task() -> None:
    world = World()
    outcome = world.start(start_delay_ms=5_000)
    assert outcome.decision.tasks == ()
    assert world.types == ["workflow_execution_started"]
    assert due_us(world.run) == START_US + 5 * SECOND_US
    world.signal()
    assert not world.last.tasks, "a signal does not cut the delay short"
    world.wait(4.999)
    assert world.due() is None
    world.wait(0.001)
    world.due()
    [task] = world.last.tasks
    assert (task.entry.number, task.entry.attempt) == (1, 1)


def test_the_row_keeps_memo_and_search_attributes() -> None:
    world = World()
    world.start(memo={"note": encode("x")}, search_attributes={"city": encode("Rome")})
    assert unpack_values(world.run.memo) == {"note": encode("x")}
    assert unpack_values(world.run.search_attributes) == {"city": encode("Rome")}


def test_an_open_run_refuses_a_second_start_and_names_itself() -> None:
    world = World()
    first = world.start()
    with pytest.raises(WorkflowAlreadyStartedError) as refused:
        world.start()
    assert refused.value.reason == "ALREADY_STARTED"
    assert refused.value.details == {"run_id": first.run_id, "status": "running"}


def test_use_existing_answers_with_the_open_run_and_writes_only_the_request() -> None:
    world = World()
    first = world.start()
    again = world.start(request_id="r2", id_conflict_policy=q.USE_EXISTING)
    assert (again.run_id, again.started) == (first.run_id, False)
    assert (again.decision.events, again.decision.tasks) == ((), ())
    assert again.decision.acknowledged == Acknowledged("r2", "start", first.run_id, 1, HASH)


def test_terminate_existing_ends_the_open_run_in_the_same_decision() -> None:
    world = World().with_activity()
    world.claim()
    first = world.latest
    second = world.start(request_id="r2", id_conflict_policy=q.TERMINATE_EXISTING)
    [ended] = second.decision.also
    assert second.started
    assert ended.execution.run_id == first
    assert world.executions[first].status == "terminated"
    assert [one.claim_token for one in ended.stopped] == ["c1"]
    assert world.run.is_open
    assert world.run.first_run_id == world.latest


@pytest.mark.parametrize("status", CLOSED)
def test_a_closed_id_may_be_used_again_by_default(status: str) -> None:
    world = closed_as(status)
    before = world.latest
    assert world.start().started
    assert world.latest != before


@pytest.mark.parametrize("status", CLOSED)
def test_failed_only_lets_a_closed_id_be_used_again_unless_it_completed(status: str) -> None:
    world = closed_as(status)
    if status == "completed":
        with pytest.raises(WorkflowAlreadyStartedError) as refused:
            world.start(id_reuse_policy=q.ALLOW_DUPLICATE_FAILED_ONLY)
        assert refused.value.reason == "REUSE_REJECTED"
    else:
        assert world.start(id_reuse_policy=q.ALLOW_DUPLICATE_FAILED_ONLY).started


@pytest.mark.parametrize("status", CLOSED)
def test_reject_duplicate_lets_no_closed_id_be_used_again(status: str) -> None:
    world = closed_as(status)
    with pytest.raises(WorkflowAlreadyStartedError) as refused:
        world.start(id_reuse_policy=q.REJECT_DUPLICATE)
    assert refused.value.details["status"] == status


def test_signal_with_start_signals_in_the_first_batch() -> None:
    world = World()
    outcome = world.start(signal_name="go", signal_input=(encode(1),))
    assert world.types == ["workflow_execution_started", "workflow_execution_signaled"]
    assert len(outcome.decision.tasks) == 1
    assert world.run.signal_count == 1
    assert outcome.decision.acknowledged is not None
    assert outcome.decision.acknowledged.event_id == 1


def test_signal_with_start_only_signals_an_open_run() -> None:
    world = World()
    first = world.start()
    second = world.start(request_id="r2", signal_name="go")
    assert (second.run_id, second.started) == (first.run_id, False)
    assert world.types == ["workflow_execution_started", "workflow_execution_signaled"]
    assert second.decision.acknowledged == Acknowledged("r2", "start", first.run_id, 2, HASH)


def test_a_signal_is_an_event_a_request_row_and_a_task_if_none_is_pending() -> None:
    world = World()
    world.start()
    world.report()
    assert world.run.workflow_task.state == "none"
    decision = world.signal("go", 1, request_id="s1")
    assert decision.acknowledged == Acknowledged("s1", "signal", world.latest, 3, HASH)
    event = world.events[-1]
    assert isinstance(event, e.WorkflowExecutionSignaled)
    assert (event.name, event.input, event.request_id) == ("go", (encode(1),), "s1")
    assert [task.entry.number for task in decision.tasks] == [2]
    assert world.signal().tasks == (), "one task at a time"


def test_a_run_has_at_most_ten_thousand_signals() -> None:
    world = World()
    world.start()
    world.run.signal_count = SIGNALS_MAX
    for send in (world.signal, lambda: world.start(signal_name="go")):
        with pytest.raises(FailedPreconditionError) as refused:
            send()
        assert refused.value.reason == "TOO_MANY_SIGNALS"


def test_a_cancel_request_is_recorded_once_and_acknowledged_each_time() -> None:
    world = World()
    world.start()
    first, second = world.cancel("stop"), world.cancel("now")
    assert world.types[1:] == ["workflow_execution_cancel_requested"]
    assert (second.events, second.tasks) == ((), ())
    assert first.acknowledged is not None
    assert second.acknowledged is not None
    assert first.acknowledged.event_id == second.acknowledged.event_id == 2


def test_a_termination_ends_the_run_at_once_and_stops_what_runs() -> None:
    world = World().with_activity()
    world.claim()
    decision = world.terminate("enough")
    assert world.run.status == "terminated"
    assert world.run.closed_us == world.now_us
    assert [(one.claim_token, one.reason) for one in decision.stopped] == [("c1", "run closed")]
    assert decision.acknowledged is not None
    assert decision.acknowledged.event_id == decision.events[-1].event_id
    event = world.events[-1]
    assert isinstance(event, e.WorkflowExecutionTerminated)
    assert event.reason == "enough"


@pytest.mark.parametrize("status", CLOSED)
def test_a_closed_run_refuses_every_message_and_says_how_it_ended(status: str) -> None:
    world = closed_as(status)
    before = world.run
    for send in (world.signal, world.cancel, world.terminate):
        with pytest.raises(RunClosedError) as refused:
            send()
        assert refused.value.details == {"run_id": world.latest, "status": status}
    assert world.run is before


def test_no_decision_changes_the_execution_that_it_was_taken_on() -> None:
    world = World().with_activity()
    before: Execution = world.run
    world.claim()
    world.signal()
    assert before.activities[1].state == "scheduled"
    assert before.workflow_task.state == "none"
    world.report(activity(2))
    assert list(before.activities) == [1]
