# ruff: noqa: ANN401, FBT001, FBT002, PLW0108, S311 - forbidden calls are what is tested

from __future__ import annotations

import asyncio
import inspect
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
    assert refusal(lambda: time.time(), swallow=True).type == "ForbiddenCallError"


def test_no_function_of_the_dice_that_all_share_is_left_out() -> None:
    install()
    shared: Any = random.seed
    dice = inspect.unwrap(shared).__self__
    rolls = {
        f"random.{name}"
        for name, found in vars(random).items()
        if getattr(inspect.unwrap(found), "__self__", None) is dice and "state" not in name
    }
    assert len(rolls) > 20
    assert rolls - set(GUARDED) == set()


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
