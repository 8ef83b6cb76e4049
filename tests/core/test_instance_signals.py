# ruff: noqa: ARG002 - results of workflows have any type

from __future__ import annotations

from typing import Any

from odin import activity, workflow
from odin.core import commands as c
from odin.core.payload import decode, encode
from odin.exceptions import ApplicationError
from tests.core.replay_owner import Owner


@activity.defn(name="double-it")
def double(number: int) -> int:
    return 2 * number


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
    assert "test_instance_signals.py" in failure.source
    owner.check_replay()


def test_a_bug_in_a_signal_handler_fails_the_task_and_not_the_run() -> None:
    owner = Owner(Fragile)
    owner.signal("bug")
    failure = owner.broken_step()
    assert (failure.kind, failure.type) == ("worker", "KeyError")
    assert "'missing'" in failure.message
    assert "test_instance_signals.py:" in failure.source


def test_a_signal_handler_may_continue_as_new() -> None:
    owner = Owner(Fragile)
    owner.signal("move_on")
    owner.step()
    assert owner.closing == c.ContinueAsNew(input=(encode(1),))


def test_an_unfinished_handler_at_the_end_of_the_run_is_noticed() -> None:
    owner = Owner(Counter, 0)
    owner.signal("add-later", 1)
    owner.signal("add", 1)
    owner.signal("add", 2)
    owner.signal("finish")
    outcome = owner.begin()
    assert "1 signal handlers were unfinished" in outcome.notices[0]


@workflow.defn
class CountsOn:
    def __init__(self) -> None:
        self.new = 0

    @workflow.run
    async def run(self, count: int) -> int:
        await workflow.wait_condition(lambda: self.new > 0)
        workflow.continue_as_new(args=[count + self.new])
        raise AssertionError("not reached")

    @workflow.signal
    def tick(self) -> None:
        self.new += 1


def test_all_signals_of_a_task_are_handled_before_a_run_that_ends_by_the_first_of_them() -> None:
    owner = Owner(CountsOn, 0)
    owner.step()
    for _ in range(5):
        owner.signal("tick")

    owner.step()

    closing = owner.closing
    assert isinstance(closing, c.ContinueAsNew)
    assert [decode(argument) for argument in closing.input] == [5]
