# ruff: noqa: A004, ANN401, ARG002, C901, PLE0643, TRY301 - failing code is what is tested

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from odin import activity, workflow
from odin.common import RetryPolicy
from odin.core import commands as c
from odin.core import events as e
from odin.core.definition import WorkflowInfo
from odin.core.failures import NondeterminismError, WorkflowTaskError
from odin.core.instance import Instance, StaleInstanceError
from odin.core.payload import Failure, encode
from odin.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError
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


@workflow.defn
class Counter:
    @workflow.init
    def __init__(self, start: int) -> None:
        self.values = [start]
        self.done = False

    @workflow.run
    async def run(self, start: int) -> list[int]:
        self.values.append(-1)
        await workflow.wait_condition(lambda: self.done)
        return self.values

    @workflow.signal
    def add(self, value: int) -> None:
        self.values.append(value)

    @workflow.signal(name="add-later")
    async def later(self, value: int) -> None:
        self.values.append(await workflow.execute_activity(double, value))

    @workflow.signal
    async def finish(self) -> None:
        await workflow.wait_condition(
            lambda: workflow.all_handlers_finished() or len(self.values) > 3
        )
        self.done = True


def test_signals_that_came_before_the_first_task_are_handled_before_run_starts() -> None:
    owner = Owner(Counter, 10)
    owner.signal("add", 11)
    owner.step()
    owner.signal("add", 12)
    owner.signal("finish")
    owner.step()
    assert owner.result == [10, 11, -1, 12]
    owner.check_replay()
    owner.check_every_task()


def test_a_signal_is_applied_before_an_activity_result_that_came_earlier() -> None:
    owner = Owner(Counter, 0)
    owner.signal("add-later", 1)
    owner.step()
    owner.complete(1, 2)
    owner.signal("add", 5)
    owner.signal("finish")
    owner.step()
    assert owner.result == [0, -1, 5, 2]
    owner.check_replay()


def test_an_event_that_a_task_had_not_seen_belongs_to_the_next_task() -> None:
    owner = Owner(Counter, 0)
    outcome = owner.begin()
    owner.signal("add", 1)
    owner.accept(outcome)
    owner.signal("finish")
    owner.signal("add", 2)
    owner.step()
    assert owner.result == [0, -1, 1, 2]
    owner.check_replay()
    owner.check_every_task()


def test_a_signal_that_does_not_fit_its_handler_is_dropped_with_a_notice() -> None:
    owner = Owner(Counter, 0)
    owner.signal("add", "many")
    owner.signal("add")
    owner.signal("add", 4)
    outcome = owner.begin()
    assert [notice.partition(",")[0] for notice in outcome.notices] == [
        "signal 'add' was dropped"
    ] * 2
    owner.accept(outcome)
    owner.signal("add", 5)
    owner.signal("finish")
    owner.step()
    assert owner.result == [0, 4, -1, 5]
    owner.check_replay()


@workflow.defn
async def late_handler() -> list[Any]:
    got: list[Any] = []
    await workflow.sleep(1)
    workflow.set_signal_handler("note", got.append)
    await workflow.wait_condition(lambda: "end" in got)
    workflow.set_signal_handler("note", None)
    return got


def test_signals_are_kept_until_a_handler_registers() -> None:
    owner = Owner(late_handler)
    owner.signal("note", 1)
    owner.signal("note", 2)
    owner.step()
    owner.signal("other", 3)
    owner.fire()
    owner.step()
    owner.signal("note", "end")
    owner.step()
    assert owner.result == [1, 2, "end"]
    owner.check_replay()


@workflow.defn
class Fragile:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    async def fail(self) -> None:
        raise ApplicationError("no", 7, type="Fatal", non_retryable=True)

    @workflow.signal
    def bug(self) -> None:
        dict[str, int]()["missing"]

    @workflow.signal
    def move_on(self) -> None:
        workflow.continue_as_new(1)


def test_a_failure_in_a_signal_handler_fails_the_run() -> None:
    owner = Owner(Fragile)
    owner.signal("fail")
    owner.step()
    failure = owner.failure
    assert (failure.message, failure.type, failure.kind) == ("no", "Fatal", "application")
    assert failure.non_retryable
    assert failure.details == (encode(7),)
    assert "test_instance_scenarios.py" in failure.source
    owner.check_replay()


def test_a_bug_in_a_signal_handler_fails_the_task_and_not_the_run() -> None:
    owner = Owner(Fragile)
    owner.signal("bug")
    failure = owner.broken_step()
    assert (failure.kind, failure.type) == ("worker", "KeyError")
    assert "'missing'" in failure.message
    assert "test_instance_scenarios.py:" in failure.source


def test_a_signal_handler_may_continue_as_new() -> None:
    owner = Owner(Fragile)
    owner.signal("move_on")
    owner.step()
    assert owner.closing == c.ContinueAsNew(input=(encode(1),))


@workflow.defn
async def failing(how: str) -> None:
    match how:
        case "application":
            try:
                raise ValueError("inner")
            except ValueError as inner:
                raise ApplicationError("outer", next_retry_delay=timedelta(seconds=2)) from inner
        case "activity":
            await workflow.execute_activity("charge")
        case "timeout":
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(workflow.execute_activity("a"))
                group.create_task(workflow.execute_activity("b"))
        case "exit":
            raise SystemExit(3)
        case "cancelled":
            handle = workflow.start_activity("charge")
            handle.cancel()
            await handle
        case "unstorable":
            return {1, float("nan")}  # type: ignore[return-value]
        case _:
            [][1]
    return None


def test_an_application_error_fails_the_run_with_its_cause() -> None:
    owner = Owner(failing, "application")
    owner.step()
    failure = owner.failure
    assert failure.message == "outer"
    assert failure.next_retry_delay_ms == 2_000
    assert failure.cause is not None
    assert (failure.cause.type, failure.cause.message) == ("ValueError", "inner")


def test_an_activity_s_failure_fails_the_run_with_the_chain_of_causes() -> None:
    owner = Owner(failing, "activity")
    owner.step()
    owner.fail(1, "card refused", "Refused")
    owner.step()
    failure = owner.failure
    assert (failure.kind, failure.type) == ("activity", "charge")
    assert failure.cause is not None
    assert (failure.cause.type, failure.cause.message) == ("Refused", "card refused")
    owner.check_replay()


def test_a_timeout_of_asyncio_fails_the_run() -> None:
    owner = Owner(failing, "timeout")
    assert owner.step() == (c.StartTimer(command_id=1, duration_ms=1_000),)
    owner.fire()
    owner.step()
    assert owner.failure.kind == "timeout"
    owner.check_replay()


def test_a_group_of_failures_fails_the_run_and_shows_the_first() -> None:
    owner = Owner(failing, "group")
    owner.step()
    owner.fail(2)
    owner.step()
    failure = owner.failure
    assert failure.type == "ExceptionGroup"
    assert failure.cause is not None
    assert (failure.cause.kind, failure.cause.type) == ("activity", "b")
    owner.check_replay()


@pytest.mark.parametrize(
    ("how", "type_", "text"),
    [
        ("bug", "IndexError", "list index out of range"),
        ("exit", "SystemExit", "must not exit"),
        ("cancelled", "CancelledError", "nobody had asked"),
        ("unstorable", "PayloadError", "the result of workflow 'failing'"),
    ],
)
def test_any_other_exception_fails_only_the_task_and_names_the_line(
    how: str, type_: str, text: str
) -> None:
    owner = Owner(failing, how)
    failure = owner.broken_step()
    assert failure.kind == "worker"
    assert failure.type == type_
    assert text in failure.message
    assert owner.closing is None
    if how in {"bug", "exit"}:
        assert "test_instance_scenarios.py:" in failure.source


def test_a_failed_task_stays_failed_until_the_instance_is_replaced() -> None:
    owner = Owner(failing, "bug")
    first = owner.broken_step()
    assert owner.warm is not None
    assert owner.warm.run_task(START_US).failure == first
    with pytest.raises(WorkflowTaskError):
        owner.warm.apply([])


@workflow.defn(failure_exception_types=[LookupError])
async def lenient() -> None:
    raise KeyError("gone")


def test_an_author_may_name_further_exceptions_that_fail_the_run() -> None:
    owner = Owner(lenient)
    owner.step()
    assert owner.failure.type == "KeyError"


@workflow.defn
class Picky:
    def __init__(self) -> None:
        raise ApplicationError("not today")

    @workflow.run
    async def run(self) -> None: ...


def test_a_failure_of_the_constructor_fails_the_run() -> None:
    owner = Owner(Picky)
    owner.step()
    assert owner.failure.message == "not today"
    owner.check_replay()


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
async def endings() -> list[str]:
    seen = []
    for _ in range(3):
        try:
            await workflow.execute_activity("step", retry_policy=RetryPolicy(maximum_attempts=2))
        except ActivityError as error:
            seen.append(f"{error} / {error.retry_state} / {type(error.cause).__name__}")
            if isinstance(error.cause, TimeoutError):
                seen.append(str(error.cause.type))
            if isinstance(error.cause, CancelledError):
                seen.append(str(error.cause.details))
    return seen


def test_every_ending_of_an_activity_is_raised_with_its_cause() -> None:
    owner = Owner(endings)
    owner.step()
    owner.fail(1)
    owner.step()
    owner.time_out(2)
    owner.step()
    owner.end_canceled(3, "why")
    owner.step()
    assert owner.result == [
        "activity 'step' failed / max_attempts / ApplicationError",
        "activity 'step' timed out (start_to_close) /  / TimeoutError",
        "start_to_close",
        "activity 'step' was cancelled /  / CancelledError",
        "('why',)",
    ]


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


def test_an_unfinished_handler_at_the_end_of_the_run_is_noticed() -> None:
    owner = Owner(Counter, 0)
    owner.signal("add-later", 1)
    owner.signal("add", 1)
    owner.signal("add", 2)
    owner.signal("finish")
    outcome = owner.begin()
    assert "1 signal handlers were unfinished" in outcome.notices[0]


@workflow.defn
async def one_step() -> str:
    try:
        await workflow.execute_activity("step")
    except ActivityError as error:
        cause = error.cause
        assert isinstance(cause, TimeoutError)
        return f"{cause} {cause.type} {cause.cause}"
    return "ended"


@pytest.mark.parametrize(
    ("timeout_type", "text"),
    [
        ("heartbeat", "heartbeat timeout heartbeat Broken: last words"),
        ("moon", "moon timeout None Broken: last words"),
    ],
)
def test_a_timeout_shows_what_the_last_attempt_had_failed_of(timeout_type: str, text: str) -> None:
    owner = Owner(one_step)
    owner.step()
    failure = Failure("last words", type="Broken")
    owner.append(e.ActivityTaskTimedOut(command_id=1, timeout_type=timeout_type, failure=failure))
    owner.step()
    assert owner.result == text
