# ruff: noqa: ANN401, SLF001 - results have any type

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin import workflow
from odin.core.loop_parts import duration_ms_of
from tests.core.replay_owner import Owner


@pytest.mark.parametrize(
    ("seconds", "ms"), [(5, 5_000), (0.0001, 1), (0, 0), (-1, -1_000), (0.001, 1), (1.0004, 1_001)]
)
def test_delays_are_rounded_up_to_milliseconds(seconds: float, ms: int) -> None:
    assert duration_ms_of(seconds) == ms


@given(now_us=st.integers(10**15, 4 * 10**15), ms=st.integers(1, 10**9))
def test_a_deadline_computed_in_floats_is_as_long_as_it_was_meant(now_us: int, ms: int) -> None:
    now = now_us / 1_000_000
    assert duration_ms_of((now + ms / 1_000) - now) == ms


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300])
def test_a_delay_that_is_no_span_of_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        duration_ms_of(seconds)


@workflow.defn
async def oddities() -> list[Any]:
    loop = asyncio.get_running_loop()
    trace: list[Any] = []
    loop.call_later(-1, trace.append, "soon")
    loop.call_later(3, trace.append, "later")
    loop.call_at(loop.time() + 2, trace.append, "at")
    dropped = loop.call_later(1, trace.append, "never")
    dropped.cancel()
    dropped.cancel()
    loop.call_soon(trace.append, "never").cancel()
    trace.append([dropped.cancelled(), dropped.when() > loop.time()])
    trace += [loop.get_debug(), loop.is_running(), loop.is_closed(), loop.get_task_factory()]
    trace.append(loop.get_exception_handler())
    loop.set_debug(True)
    loop.call_exception_handler({})
    loop.default_exception_handler({})
    await loop.shutdown_asyncgens()
    task = asyncio.create_task(asyncio.sleep(0), name="mine")
    unnamed = asyncio.create_task(asyncio.sleep(0))
    trace += [task.get_name(), unnamed.get_name()]
    await asyncio.wait([task, unnamed])
    sleeping = asyncio.create_task(workflow.sleep(4))
    await workflow.sleep(0)
    sleeping.cancel()
    await workflow.sleep(4)
    trace.append(sleeping.cancelled())
    return trace


def test_the_loop_keeps_asyncio_s_rules_for_handles_names_and_timers() -> None:
    owner = Owner(oddities)
    assert [type(command).__name__ for command in owner.step()] == [
        *["StartTimer"] * 3, "CancelTimer", "StartTimer", "CancelTimer", "StartTimer",
    ]  # fmt: skip
    owner.fire(2)
    owner.fire(1)
    owner.fire(5)
    owner.step()
    assert owner.result == [
        [True, True], False, True, False, None, None, "mine", "Task-3", "soon", "at", "later", True,
    ]  # fmt: skip
    owner.check_replay()


@workflow.defn
async def many() -> int:
    async def stream(at: int) -> Any:
        yield at

    total = 0
    for at in range(300):
        total += await asyncio.create_task(asyncio.sleep(0, 1))
        async for value in stream(at):
            total += value - at
    return total


def test_tasks_and_generators_that_are_done_are_let_go() -> None:
    owner = Owner(many)
    owner.step()
    assert owner.result == 300
    assert owner.warm is not None
    loop = owner.warm._run.loop
    assert len(loop._tasks) < 130
    assert len(loop._asyncgens) < 130
    owner.warm.evict()


@workflow.defn
class Conditions:
    def __init__(self) -> None:
        self.tokens = 0
        self.trace: list[str] = []

    async def taker(self, name: str) -> None:
        await workflow.wait_condition(lambda: self.tokens > 0)
        assert self.tokens > 0
        self.tokens -= 1
        self.trace.append(name)

    @workflow.run
    async def run(self) -> list[str]:
        takers = [asyncio.create_task(self.taker(name)) for name in "abc"]
        await asyncio.wait(takers)
        try:
            await workflow.wait_condition(lambda: self.tokens > 5, timeout=2)
        except TimeoutError:
            self.trace.append("timed out")
        await workflow.wait_condition(lambda: True, timeout=1)
        waiting = asyncio.create_task(workflow.wait_condition(lambda: bool([][self.tokens :][0:0])))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        return self.trace

    @workflow.signal
    def token(self, count: int) -> None:
        self.tokens += count


def test_a_condition_still_holds_when_the_code_that_waited_goes_on() -> None:
    owner = Owner(Conditions)
    owner.step()
    owner.signal("token", 1)
    owner.step()
    owner.signal("token", 2)
    assert len(owner.step()) == 1
    owner.fire()
    owner.step()
    assert owner.result == ["a", "b", "c", "timed out"]
    owner.check_replay()


@workflow.defn
async def bad_condition(how: str) -> None:
    flag: list[int] = []

    def raises() -> bool:
        if flag:
            raise KeyError("in the condition")
        return False

    def writes() -> bool:
        _ = workflow.start_activity("x")
        return True

    if how == "raises":
        waiting = asyncio.create_task(workflow.wait_condition(raises))
        await asyncio.sleep(0)
        flag.append(1)
        await waiting
    await workflow.wait_condition(writes)


@pytest.mark.parametrize(
    ("how", "text"), [("raises", "in the condition"), ("writes", "may only read")]
)
def test_a_condition_that_raises_or_writes_fails_the_task(how: str, text: str) -> None:
    failure = Owner(bad_condition, how).broken_step()
    assert text in failure.message
    assert "test_loop_rules.py:" in failure.source


@workflow.defn
async def late_cancels() -> str:
    slept = workflow.sleep(1)
    timer = asyncio.get_running_loop().timer(1_000, "named")  # type: ignore[attr-defined] # odin's own
    await slept
    await timer
    assert not timer.cancel()
    return "done"


def test_cancelling_a_timer_that_fired_asks_for_nothing() -> None:
    owner = Owner(late_cancels)
    owner.step()
    owner.fire(1)
    owner.fire(2)
    owner.step()
    assert owner.result == "done"
