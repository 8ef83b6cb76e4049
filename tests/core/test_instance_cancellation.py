# ruff: noqa: ANN401 - results of workflows have any type

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odin import workflow
from odin.core import commands as c
from odin.workflow import ActivityCancellationType as How
from tests.core.replay_owner import Owner

KINDS = {"try": How.TRY_CANCEL, "wait": How.WAIT_CANCELLATION_COMPLETED, "abandon": How.ABANDON}


@workflow.defn
async def one(kind: str) -> str:
    try:
        return await workflow.execute_activity(
            "step", result_type=str, cancellation_type=KINDS[kind]
        )
    except asyncio.CancelledError:
        await workflow.execute_activity("clean-up")
        raise


def cancelled_owner(workflow_: Any, *args: object) -> Owner:
    owner = Owner(workflow_, *args)
    owner.step()
    owner.cancel("enough")
    return owner


def test_try_cancel_ends_the_wait_at_once_and_asks_the_activity_to_stop() -> None:
    owner = cancelled_owner(one, "try")
    asked, clean_up = owner.step()
    assert asked == c.RequestCancelActivity(command_id=1, wait=False)
    assert isinstance(clean_up, c.ScheduleActivity)
    assert owner.history[-2].type == "activity_task_canceled"
    owner.complete(2)
    owner.step()
    assert owner.closing == c.CancelWorkflow()
    owner.check_replay()
    owner.check_every_task()


def test_abandon_ends_the_wait_and_leaves_the_activity_alone() -> None:
    owner = cancelled_owner(one, "abandon")
    (clean_up,) = owner.step()
    assert isinstance(clean_up, c.ScheduleActivity)
    owner.complete(1, "late")
    owner.complete(2)
    owner.step()
    assert owner.closing == c.CancelWorkflow()
    owner.check_replay()


def test_wait_cancellation_completed_waits_for_the_activity_s_end() -> None:
    owner = cancelled_owner(one, "wait")
    assert owner.step() == (c.RequestCancelActivity(command_id=1, wait=True),)
    owner.end_canceled(1)
    (clean_up,) = owner.step()
    assert isinstance(clean_up, c.ScheduleActivity)
    owner.complete(2)
    owner.step()
    assert owner.closing == c.CancelWorkflow()
    owner.check_replay()
    owner.check_every_task()


def test_wait_cancellation_completed_gives_the_result_if_the_activity_still_made_one() -> None:
    owner = cancelled_owner(one, "wait")
    owner.step()
    owner.complete(1, "made it")
    owner.step()
    assert owner.result == "made it"
    owner.check_replay()


def test_wait_cancellation_completed_raises_what_the_activity_failed_of() -> None:
    owner = cancelled_owner(one, "wait")
    owner.step()
    owner.fail(1)
    owner.step()
    assert owner.failure.kind == "activity"


@workflow.defn
async def asks_twice() -> str:
    handle = workflow.start_activity(
        "step", result_type=str, cancellation_type=How.WAIT_CANCELLATION_COMPLETED
    )
    assert handle.cancel()
    assert handle.cancel()
    try:
        await handle
    except asyncio.CancelledError:
        assert not handle.cancel()
        return "stopped"
    return "ran"


def test_an_activity_is_asked_to_stop_only_once() -> None:
    owner = Owner(asks_twice)
    assert owner.step()[1:] == (c.RequestCancelActivity(command_id=1, wait=True),)
    owner.end_canceled(1)
    owner.step()
    assert owner.result == "stopped"


def test_a_cancellation_that_meets_a_recorded_result_is_recorded_and_does_nothing() -> None:
    owner = Owner(one, "try")
    owner.step()
    owner.cancel()
    outcome = owner.begin()
    owner.complete(1, "too late")  # not seen by that task
    owner.accept(outcome)
    assert owner.history[-2].type == "activity_task_cancel_requested"
    owner.complete(2)
    owner.step()
    assert owner.closing == c.CancelWorkflow()
    owner.check_replay()
    owner.check_every_task()


@workflow.defn
async def sleeps_then_goes_on() -> list[Any]:
    trace: list[Any] = []
    try:
        await workflow.sleep(10)
    except asyncio.CancelledError:
        trace.append("cancelled")
    await workflow.sleep(1)
    return [*trace, workflow.is_cancel_requested(), workflow.cancellation_reason()]


def test_a_workflow_may_swallow_its_cancellation_and_a_second_request_is_ignored() -> None:
    owner = cancelled_owner(sleeps_then_goes_on)
    assert owner.step() == (
        c.CancelTimer(command_id=1),
        c.StartTimer(command_id=2, duration_ms=1_000),
    )
    owner.cancel("again")
    assert owner.step() == ()
    owner.fire(2)
    owner.step()
    assert owner.result == ["cancelled", True, "enough"]
    owner.check_replay()


def test_a_run_cancelled_before_its_first_task_never_starts() -> None:
    owner = Owner(sleeps_then_goes_on)
    owner.cancel()
    owner.step()
    assert owner.closing == c.CancelWorkflow()
    owner.check_replay()


@workflow.defn
async def sticky() -> str:
    first = workflow.start_activity("first", result_type=str)
    await first
    try:
        await workflow.execute_activity("second")
    except asyncio.CancelledError:
        return "cancelled"
    return "missed"


def test_a_cancellation_that_meets_a_just_finished_wait_is_delivered_at_the_next() -> None:
    owner = Owner(sticky)
    owner.step()
    owner.complete(1, "done")
    owner.cancel()  # applied first, although it came later
    owner.step()
    assert owner.closing == c.CancelWorkflow()

    @workflow.defn
    async def same_tick() -> str:
        gate = asyncio.Event()
        me = asyncio.current_task()
        assert me is not None
        asyncio.get_running_loop().call_soon(gate.set)
        asyncio.get_running_loop().call_soon(me.cancel)
        await gate.wait()
        return "missed"

    owner = Owner(same_tick)
    assert "nobody had asked" in owner.broken_step().message


@workflow.defn
async def shielded() -> str:
    handle = workflow.start_activity("step", result_type=str)
    try:
        return await asyncio.shield(handle)
    except asyncio.CancelledError:
        return "clean " + await asyncio.shield(handle)


def test_shield_keeps_an_activity_running_through_a_cancellation() -> None:
    owner = cancelled_owner(shielded)
    assert owner.step() == ()
    owner.complete(1, "end")
    owner.step()
    assert owner.result == "clean end"
    owner.check_replay()


@workflow.defn
async def grouped() -> None:
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(workflow.execute_activity(name))


def test_cancelling_a_task_group_cancels_its_activities_in_order() -> None:
    owner = cancelled_owner(grouped)
    *asked, closing = owner.step()
    assert asked == [c.RequestCancelActivity(command_id=at) for at in (1, 2, 3)]
    assert closing == c.CancelWorkflow()
    owner.check_replay()


@workflow.defn
async def inner_timeout(kind: str) -> str:
    try:
        async with asyncio.timeout(5):
            await workflow.execute_activity("slow", cancellation_type=KINDS[kind])
    except TimeoutError:
        return "timed out"
    return "in time"


@pytest.mark.parametrize("kind", ["try", "wait", "abandon"])
def test_a_timeout_around_an_activity_is_a_timer_and_cancels_it(kind: str) -> None:
    owner = Owner(inner_timeout, kind)
    timer, _ = owner.step()
    assert timer == c.StartTimer(command_id=1, duration_ms=5_000)
    owner.fire(1)
    commands = owner.step()
    if kind == "abandon":
        assert isinstance(commands[0], c.CompleteWorkflow)
    else:
        assert commands[0] == c.RequestCancelActivity(command_id=2, wait=kind == "wait")
    if kind == "wait":
        owner.end_canceled(2)
        owner.step()
    assert owner.result == "timed out"
    owner.check_replay()

    owner = Owner(inner_timeout, kind)
    owner.step()
    owner.complete(2)
    assert owner.step()[0] == c.CancelTimer(command_id=1)
    assert owner.result == "in time"
    owner.check_replay()


@workflow.defn
class HandlerGoesOn:
    def __init__(self) -> None:
        self.trace: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        try:
            await workflow.wait_condition(lambda: False)
        except asyncio.CancelledError:
            await workflow.wait_condition(workflow.all_handlers_finished)
        return self.trace

    @workflow.signal
    async def work(self) -> None:
        self.trace.append(await workflow.execute_activity("work", result_type=str))

    @workflow.signal
    async def stop_itself(self) -> None:
        handle = workflow.start_activity("work")
        handle.cancel()
        await handle


def test_a_cancel_request_reaches_the_main_function_and_no_handler() -> None:
    owner = Owner(HandlerGoesOn)
    owner.signal("work")
    owner.step()
    owner.cancel()
    assert owner.step() == ()
    owner.complete(1, "worked")
    owner.step()
    assert owner.result == ["worked"]
    owner.check_replay()


def test_a_cancellation_that_leaves_a_handler_ends_only_the_handler_of_a_cancelled_run() -> None:
    owner = Owner(HandlerGoesOn)
    owner.signal("work")
    owner.step()
    owner.cancel()
    owner.step()
    owner.signal("stop_itself")
    owner.step()
    assert owner.closing is None
    owner.complete(1, "worked")
    owner.step()
    assert owner.result == ["worked"]
    owner.check_replay()
