# ruff: noqa: ANN401 - results of workflows have any type

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from odin import activity, workflow
from odin.core import commands as c
from odin.core import events as e
from odin.core.definition import WorkflowInfo
from odin.core.failures import NondeterminismError, WorkflowTaskError
from odin.core.instance import Instance, StaleInstanceError
from odin.core.payload import encode
from tests.core.replay_owner import RUN_ID, START_US, Owner


@dataclass
class Item:
    name: str
    price: int


@activity.defn
async def price(item: Item) -> Item:
    return item


@activity.defn(name="double-it")
def double(number: int) -> int:
    return 2 * number


@workflow.defn
async def shopping(item: Item, times: int = 2) -> dict[str, int]:
    priced = await workflow.execute_activity(price, item)
    await workflow.sleep(5)
    doubled = await workflow.execute_activity(double, priced.price)
    return {priced.name: doubled * times}


def test_a_function_runs_through_activities_and_a_timer_to_its_result() -> None:
    owner = Owner(shopping, Item("tea", 3))

    (scheduled,) = owner.step()
    assert isinstance(scheduled, c.ScheduleActivity)
    assert (scheduled.command_id, scheduled.activity_id, scheduled.activity_type) == (
        1,
        "1",
        "price",
    )
    assert (scheduled.task_queue, scheduled.start_to_close_ms) == ("default", 60_000)
    assert scheduled.input == (encode(Item("tea", 3)),)

    owner.complete(1, {"name": "tea", "price": 4})
    assert owner.step() == (c.StartTimer(command_id=2, duration_ms=5_000),)
    owner.fire(2)
    (again,) = owner.step()
    assert isinstance(again, c.ScheduleActivity)
    assert (again.command_id, again.activity_type, again.input) == (3, "double-it", (encode(4),))
    owner.complete(3, 8)
    owner.step()
    assert owner.result == {"tea": 16}
    owner.check_replay()
    owner.check_every_task()


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_history_may_arrive_in_pieces_cut_anywhere(cut: int) -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.step()
    owner.complete(1, Item("tea", 4))
    owner.step()
    owner.fire(2)
    owner.step()
    owner.complete(3, 8)
    owner.step()
    assert len(owner.history) == 12

    instance = owner.cold()
    instance.apply(owner.history[:cut])
    instance.apply(owner.history[cut:])
    assert instance.closed


def test_arguments_that_do_not_fit_fail_the_task() -> None:
    for arguments in ([], [Item("a", 1), 2, 3], ["tea"]):
        owner = Owner(shopping, *arguments)
        failure = owner.broken_step()
        assert "the arguments of workflow 'shopping' do not fit" in failure.message


def test_a_result_that_does_not_fit_its_type_fails_the_task() -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.step()
    owner.complete(1, "nonsense")
    failure = owner.broken_step()
    assert "the result of activity 'price' does not fit its type" in failure.message
    assert failure.type == "PayloadError"


@workflow.defn
async def moving_on(left: int) -> None:
    if left:
        workflow.continue_as_new(left - 1, memo={"left": left}, run_timeout=timedelta(minutes=1))
    workflow.continue_as_new(args=[1], workflow=shopping, task_queue="other")


def test_continue_as_new_carries_what_changes() -> None:
    owner = Owner(moving_on, 1)
    owner.step()
    assert owner.closing == c.ContinueAsNew(
        input=(encode(0),), run_timeout_ms=60_000, memo={"left": encode(1)}
    )
    owner.check_replay()
    owner = Owner(moving_on, 0)
    owner.step()
    assert owner.closing == c.ContinueAsNew(
        input=(encode(1),), workflow_type="shopping", task_queue="other"
    )


@workflow.defn
async def facts() -> list[Any]:
    dice = [workflow.random().random(), str(workflow.uuid4())]
    first = workflow.time()
    await workflow.sleep(timedelta(seconds=2))
    info = workflow.info()
    return [
        *dice,
        workflow.now().isoformat(),
        workflow.time_ns() == round(workflow.time() * 1e6) * 1000,
        workflow.time() - first,
        info.workflow_id,
        info.workflow_type,
        info.task_timeout.total_seconds(),
        info.run_timeout,
        info.get_current_history_length(),
        info.is_continue_as_new_suggested(),
        workflow.in_workflow(),
    ]


def test_time_dice_and_facts_are_those_of_the_history() -> None:
    owner = Owner(facts)
    owner.step()
    owner.fire()
    owner.step()
    result = owner.result
    assert result[2:] == [
        "2023-11-14T22:13:22.002000+00:00",
        True,
        pytest.approx(2.001),
        "order-1",
        "facts",
        10.0,
        None,
        4,
        False,
        True,
    ]
    owner.check_every_task()
    other = Owner(facts, seed=8)
    other.step()
    other.fire()
    other.step()
    assert other.result[:2] != result[:2]
    assert not workflow.in_workflow()
    with pytest.raises(workflow.NotInWorkflowError):
        workflow.now()


def test_a_gap_in_the_history_is_refused() -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.step()
    instance = owner.cold()
    with pytest.raises(StaleInstanceError, match=r"event 2 .* came after event 0"):
        instance.apply(owner.history[1:])
    failure = instance.run_task(START_US).failure
    assert failure is not None
    assert failure.type == "StaleInstanceError"


def test_a_task_of_another_worker_makes_the_instance_stale() -> None:
    owner = Owner(shopping, Item("tea", 3))
    outcome = owner.begin()
    assert owner.warm is not None
    owner.append(e.WorkflowTaskCompleted(seen=1, time_us=outcome.time_us + 1, worker="other"))
    with pytest.raises(StaleInstanceError, match="another worker"):
        owner.warm.apply(owner.missing(owner.warm))


def test_a_second_task_before_the_answer_to_the_first_is_refused() -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.begin()
    assert "answer to the last workflow task is missing" in owner.broken_step().message


def test_an_event_of_a_newer_version_fails_the_task_and_says_so() -> None:
    owner = Owner(shopping, Item("tea", 3))
    instance = owner.cold()
    with pytest.raises(WorkflowTaskError, match=r"event 2 .new_thing. cannot be read"):
        instance.apply([*owner.history, e.HistoryEvent(2, "new_thing", 0, b"")])


def test_a_history_that_lacks_its_start_fails_the_task() -> None:
    instance = Instance(Owner(shopping, 1).definition, WorkflowInfo("default", "order-1", RUN_ID))
    failure = instance.run_task(START_US).failure
    assert failure is not None
    assert "does not begin with" in failure.message


def test_a_terminated_run_is_closed_without_running_code() -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.step()
    owner.append(e.WorkflowExecutionTerminated(reason="enough"))
    instance = owner.cold()
    instance.apply(owner.history)
    assert instance.closed
    assert not instance.is_replaying


def test_replay_of_changed_code_names_both_sides_and_the_line() -> None:
    owner = Owner(shopping, Item("tea", 3))
    owner.step()
    owner.complete(1, Item("tea", 4))
    owner.step()

    @workflow.defn(name="shopping")
    async def changed(item: Item) -> int:
        await workflow.execute_activity(price, item)
        await workflow.sleep(6)
        return 1

    owner.definition = workflow_definition(changed)
    instance = owner.cold()
    with pytest.raises(NondeterminismError) as caught:
        instance.apply(owner.history)
    text = str(caught.value)
    assert (
        "event 6: the history has timer 2 of 5000 ms, the code asks for timer 2 of 6000 ms" in text
    )
    assert "Deploy the code that wrote this history" in text
    assert "test_instance_scenarios.py:" in caught.value.failure.source
    failure = instance.run_task(START_US).failure
    assert failure is not None
    assert failure.type == "NondeterminismError"


def workflow_definition(found: object) -> Any:
    from odin.core.definition import WorkflowDefinition

    return WorkflowDefinition.of(found)
