# ruff: noqa: ANN401, FBT001, FBT002, PLW0108, S311, SLF001 - forbidden calls are what is tested

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import threading
import time
import uuid
from typing import Any

import pytest

from odin import workflow
from odin.core.determinism import GUARDED, install
from odin.core.forbidden import FORBIDDEN, ForbiddingLoop
from odin.core.loop import TICKS_MAX, WorkflowLoop
from odin.core.loop_parts import duration_ms_of
from odin.core.payload import Failure
from tests.core.replay_owner import Owner

CALLS: dict[str, Any] = {}


@workflow.defn
async def caller(name: str, swallow: bool = False) -> str:
    try:
        result = CALLS[name]()
        if asyncio.iscoroutine(result):
            await result
    except Exception:
        if not swallow:
            raise
    return "done"


def refusal(call: Any, *, swallow: bool = False) -> Failure:
    CALLS["it"] = call
    owner = Owner(caller, "it", swallow)
    failure = owner.broken_step()
    assert owner.warm is not None
    owner.warm.evict()
    return failure


@pytest.mark.parametrize(
    ("call", "name", "instead"),
    [
        (lambda: time.time(), "time.time", "workflow.now()"),
        (lambda: time.monotonic(), "time.monotonic", "workflow.time()"),
        (lambda: time.sleep(0), "time.sleep", "await workflow.sleep"),
        (lambda: random.random(), "random.random", "workflow.random()"),
        (lambda: random.shuffle([1]), "random.shuffle", "workflow.random()"),
        (lambda: uuid.uuid4(), "uuid.uuid4", "workflow.uuid4()"),
        (lambda: uuid.uuid1(), "uuid.uuid1", "workflow.uuid4()"),
        (lambda: os.urandom(1), "os.urandom", "activity"),
        (lambda: secrets.token_hex(), "secrets.token_hex", "activity"),
        (lambda: asyncio.to_thread(len, ""), "loop.run_in_executor", "activity"),
        (lambda: asyncio.open_connection("127.0.0.1", 1), "loop.create_connection", "activity"),
        (lambda: asyncio.create_subprocess_exec("true"), "loop.subprocess_exec", "activity"),
        (
            lambda: next(asyncio.as_completed([asyncio.sleep(0)])),
            "asyncio.as_completed",
            "workflow.as_completed",
        ),
    ],
)
def test_a_call_that_cannot_be_repeated_is_refused_with_the_alternative(
    call: Any, name: str, instead: str
) -> None:
    failure = refusal(call)
    assert failure.type == "ForbiddenCallError"
    assert name in failure.message
    assert instead in failure.message
    assert "test_loop_guards.py:" in failure.source


def test_a_refused_call_fails_the_task_even_if_the_code_catches_the_error() -> None:
    assert refusal(time.time, swallow=True).type == "ForbiddenCallError"


def test_guards_are_asleep_outside_of_workflow_code() -> None:
    install()
    install()
    assert time.time() > 0
    assert random.random() < 1
    assert uuid.uuid4().version == 4
    assert set(GUARDED) >= {"time.time", "random.choice", "secrets.choice"}


def test_other_threads_are_free_while_a_workflow_runs() -> None:
    got: list[float] = []

    def other() -> None:
        got.append(time.time())

    def call() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    CALLS["it"] = call
    owner = Owner(caller, "it")
    owner.step()
    assert owner.result == "done"
    assert got


def test_loggers_may_ask_for_the_time(caplog: Any) -> None:
    CALLS["it"] = lambda: logging.getLogger("author").warning("hello")
    owner = Owner(caller, "it")
    owner.step()
    assert owner.result == "done"
    assert [record.message for record in caplog.records] == ["hello"]


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_every_method_that_needs_the_outside_is_refused(name: str) -> None:
    loop: Any = ForbiddingLoop()  # type: ignore[abstract] # the other half is missing
    with pytest.raises(Exception, match=f"loop.{name} cannot be used in a workflow"):
        getattr(loop, name)()
    assert loop.fault is not None
    first = loop.fault
    with pytest.raises(Exception, match="cannot be used"):
        loop.forbid("x", "y")
    assert loop.fault is first


def test_no_method_of_an_event_loop_was_forgotten() -> None:
    left = [
        name
        for name, member in vars(asyncio.AbstractEventLoop).items()
        if callable(member)
        and not name.startswith("_")
        and name not in FORBIDDEN
        and name not in vars(WorkflowLoop)
    ]
    assert left == []


@workflow.defn
async def spinner() -> None:
    while True:
        await asyncio.sleep(0)


def test_a_workflow_that_never_comes_to_rest_fails_its_task() -> None:
    owner = Owner(spinner)
    failure = owner.broken_step()
    assert f"{TICKS_MAX} steps without coming to rest" in failure.message
    assert "test_loop_guards.py:" in failure.source
    assert owner.warm is not None
    owner.warm.evict()


def test_a_workflow_task_that_computes_too_long_fails() -> None:
    from odin.core.definition import WorkflowInfo
    from odin.core.instance import Instance

    used = [0.0]

    def compute() -> None:
        used[0] += 2.5

    CALLS["it"] = compute
    owner = Owner(caller, "it", warm=False)
    instance = Instance(
        owner.definition, WorkflowInfo("default", "w", "r"), cpu_time=lambda: used[0]
    )
    instance.apply(owner.history)
    failure = instance.run_task(1).failure
    assert failure is not None
    assert "more than 2 s of CPU time" in failure.message


@pytest.mark.parametrize(
    ("seconds", "ms"), [(5, 5_000), (0.0001, 1), (0, 0), (-1, -1_000), (0.001, 1), (1.0004, 1_001)]
)
def test_delays_are_rounded_up_to_milliseconds(seconds: float, ms: int) -> None:
    assert duration_ms_of(seconds) == ms


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
    assert "test_loop_guards.py:" in failure.source


@workflow.defn
class ClockInConstructor:
    def __init__(self) -> None:
        self.at = time.time()  # odin: allow

    @workflow.run
    async def run(self) -> None: ...


def test_a_constructor_is_guarded_on_a_thread_too() -> None:
    failures: list[Failure] = []

    def work() -> None:
        failures.append(Owner(ClockInConstructor).broken_step())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures[0].type == "ForbiddenCallError"


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


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("in_main", [True, False])
def test_an_interrupt_of_the_process_passes_through(in_main: bool) -> None:
    def in_task() -> Any:
        async def inner() -> None:
            interrupted()

        return asyncio.gather(inner())

    CALLS["it"] = interrupted if in_main else in_task

    async def awaits() -> None:
        await CALLS["it"]()

    owner = Owner(workflow.defn(awaits))
    with pytest.raises(KeyboardInterrupt):
        owner.begin()


@workflow.defn
class InterruptedHandler:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.signal
    def stop(self) -> None:
        interrupted()


def test_an_interrupt_in_a_signal_handler_passes_through() -> None:
    owner = Owner(InterruptedHandler)
    owner.signal("stop")
    with pytest.raises(KeyboardInterrupt):
        owner.begin()
