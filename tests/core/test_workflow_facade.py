# ruff: noqa: ANN401, ARG002, C901, F821, N801 - results of workflows have any type

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from odin import activity, workflow
from odin.common import RetryPolicy, duration_ms
from odin.core import commands as c
from odin.core.backoff import RetryPolicySpec
from odin.core.definition import CallSignature, DefinitionError, WorkflowDefinition
from odin.core.payload import encode
from odin.errors import InvalidArgumentError, PayloadError
from tests.core.replay_owner import Owner

ROOT = Path(__file__).resolve().parents[2]


class Shop:
    @activity.defn
    async def sell(self, what: str) -> int:
        return len(what)


@activity.defn
def plain() -> int:
    return 1


@workflow.defn
async def every_option() -> None:
    _ = workflow.start_activity(
        "charge",
        args=[1, "two"],
        task_queue="payments",
        result_type=int,
        schedule_to_close_timeout=timedelta(minutes=5),
        schedule_to_start_timeout=timedelta(seconds=7),
        heartbeat_timeout=timedelta(seconds=3),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=4),
        activity_id="charge-1",
        summary="the card",
    )
    _ = workflow.start_activity(plain, start_to_close_timeout=timedelta(seconds=9))
    _ = workflow.start_activity_method(Shop.sell, "tea")
    await workflow.execute_activity_method(Shop.sell, "tea")


def test_every_option_of_an_activity_reaches_its_command() -> None:
    owner = Owner(every_option)
    first, second, third, fourth = owner.step()
    assert first == c.ScheduleActivity(
        command_id=1,
        activity_id="charge-1",
        activity_type="charge",
        task_queue="payments",
        input=(encode(1), encode("two")),
        retry_policy=RetryPolicySpec(initial_interval_ms=2_000, maximum_attempts=4),
        schedule_to_start_ms=7_000,
        start_to_close_ms=300_000,
        schedule_to_close_ms=300_000,
        heartbeat_ms=3_000,
        summary="the card",
    )
    assert isinstance(second, c.ScheduleActivity)
    assert second.start_to_close_ms == 9_000
    assert isinstance(third, c.ScheduleActivity)
    assert (third.activity_type, third.input) == ("sell", (encode("tea"),))
    assert isinstance(fourth, c.ScheduleActivity)


@workflow.defn
async def misuses(how: str) -> None:
    if how == "both":
        _ = workflow.start_activity("x", 1, args=[2])
    if how == "undecorated":
        _ = workflow.start_activity(duration_ms, 1)
    if how == "unstorable":
        _ = workflow.start_activity("x", float("nan"))
    if how == "negative":
        _ = workflow.start_activity("x", start_to_close_timeout=timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("both", "either arg or args"),
        ("undecorated", "decorate it with @activity.defn"),
        ("unstorable", "activity 'x': argument 1 holds nan"),
        ("negative", "not negative"),
    ],
)
def test_a_misuse_of_activities_fails_the_task_with_the_reason(how: str, text: str) -> None:
    failure = Owner(misuses, how).broken_step()
    assert text in failure.message
    assert "test_workflow_facade.py:" in failure.source


def test_the_retry_policy_has_temporal_s_defaults_and_survives_the_way_through_history() -> None:
    assert RetryPolicy().to_spec() == RetryPolicySpec()
    policy = RetryPolicy(
        timedelta(seconds=3), 1.5, timedelta(minutes=1), 5, non_retryable_error_types=("Refused",)
    )
    assert RetryPolicy.from_spec(policy.to_spec()) == policy
    assert RetryPolicy.from_spec(RetryPolicySpec()) == RetryPolicy()
    with pytest.raises(InvalidArgumentError, match="initial_interval"):
        RetryPolicy(timedelta(0)).to_spec()


def test_durations_are_rounded_up_and_never_negative() -> None:
    assert duration_ms(None) is None
    assert duration_ms(1.5) == 1_500
    assert duration_ms(timedelta(microseconds=1)) == 1
    with pytest.raises(ValueError, match="not negative"):
        duration_ms(-1)


def test_the_policy_of_activities_is_checked_when_used() -> None:
    assert duration_ms(timedelta(days=1)) == 86_400_000


# Declaring.


def test_a_workflow_is_found_by_its_class_and_has_its_name() -> None:
    @workflow.defn(name="other-name")
    class Named:
        @workflow.run
        async def run(self) -> None: ...

    definition = WorkflowDefinition.of(Named)
    assert definition.name == "other-name"
    assert WorkflowDefinition.of(definition) is definition
    assert "other-name" in repr(definition)

    class Heir(Named):
        pass

    for nothing in (Heir, 7, duration_ms):
        with pytest.raises(DefinitionError, match=r"decorate it with @workflow.defn"):
            WorkflowDefinition.of(nothing)


def test_what_cannot_be_a_workflow_is_refused_when_declared() -> None:
    class NoRun:
        pass

    class NoArguments:
        def __init__(self, what: str = "x") -> None: ...

        @workflow.run
        async def run(self) -> None: ...

    workflow.defn(NoArguments)

    class TwoRuns:
        @workflow.run
        async def a(self) -> None: ...

        @workflow.run
        async def b(self) -> None: ...

    class TwoHandlers:
        @workflow.run
        async def run(self) -> None: ...

        @workflow.signal(name="x")
        def a(self) -> None: ...

        @workflow.signal(name="x")
        def b(self) -> None: ...

    class Needy:
        def __init__(self, what: str) -> None: ...

        @workflow.run
        async def run(self, what: str) -> None: ...

    def plain_function() -> None: ...

    for wrong, text in (
        (NoRun, "exactly one method"),
        (TwoRuns, "it has 2"),
        (TwoHandlers, "two handlers of signal 'x'"),
        (Needy, "decorate it with @workflow.init"),
        (plain_function, "neither a class nor an async function"),
    ):
        with pytest.raises(DefinitionError, match=text):
            workflow.defn(wrong)
    with pytest.raises(DefinitionError, match="must be `async def`"):
        workflow.run(plain_function)
    with pytest.raises(DefinitionError, match="belongs on __init__"):
        workflow.init(plain_function)


def test_arguments_are_counted_and_typed_by_the_signature() -> None:
    def optional(a: int, b: str = "x", *rest: bool, flag: int = 1, **more: Any) -> date: ...  # type: ignore[empty-body] # never called

    def keyword(*, needed: int) -> None: ...

    class Callable_:
        def __call__(self, value: int) -> str:
            return ""

    signature = CallSignature(optional)
    assert signature.returns is date
    assert signature.decode([encode(1)]) == [1]
    assert signature.decode([encode(1), encode("b"), encode([2])]) == [1, "b", [2]]
    with pytest.raises(PayloadError, match="takes 1 to any number arguments, got 0"):
        signature.decode([])
    with pytest.raises(DefinitionError, match="keyword-only parameter 'needed'"):
        CallSignature(keyword)
    assert CallSignature(Callable_()).decode([encode(3)]) == [3]


def test_a_type_hint_that_cannot_be_resolved_is_named() -> None:
    def hidden(value: Missing) -> None: ...  # type: ignore[name-defined] # missing on purpose

    with pytest.raises(DefinitionError, match="'Missing' is not defined; define the types at"):
        CallSignature(hidden)


# The lint.


@workflow.defn
async def in_order() -> list[Any]:
    handles = [workflow.start_activity(f"step-{at}", result_type=int) for at in range(3)]
    done, left = await workflow.wait(handles, return_when=asyncio.FIRST_COMPLETED)
    order: list[Any] = list(handles)
    trace: list[Any] = [[order.index(f) for f in done], [order.index(f) for f in left]]
    trace.append([await each for each in workflow.as_completed(left)])
    workflow.logger.info("counted", extra={"many": 1})
    return [*trace, workflow.unsafe.is_replaying()]


def test_wait_and_as_completed_keep_the_order(caplog: Any) -> None:
    caplog.set_level("INFO")
    owner = Owner(in_order)
    owner.step()
    owner.complete(2, 20)
    owner.step()
    owner.complete(3, 30)
    owner.complete(1, 10)
    owner.step()
    assert owner.result == [[1], [0, 2], [30, 10], False]
    owner.check_replay()
    (record,) = caplog.records
    assert (record.workflow_id, record.many) == ("order-1", 1)
    workflow.logger.info("outside")
    assert len(caplog.records) == 2


# Types, and what an import costs.


TYPED = """
from odin import activity, workflow

@activity.defn
async def double(number: int) -> int: return 2 * number
@activity.defn
def plain(number: int) -> str: return ""
@activity.defn
async def none() -> bytes: return b""
class Shop:
    @activity.defn
    async def sell(self, what: str) -> int: return 1

@workflow.defn
async def flow() -> None:
    a: int = await workflow.execute_activity(double, 1)
    b: str = await workflow.execute_activity(plain, 1)
    c: bytes = await workflow.execute_activity(none)
    d: int = await workflow.start_activity(double, 1)
    e: float = await workflow.execute_activity("x", result_type=float)
    f: int = await workflow.execute_activity_method(Shop.sell, "tea")
    g: int = await workflow.execute_activity(double, args=[1], summary="s")
"""


WRONG = """
    await workflow.execute_activity(double, "one")
    x: str = await workflow.execute_activity(double, 1)
    await workflow.execute_activity(double, 1, no_such_option=1)
    await workflow.execute_activity_method(Shop.sell, 5)
"""


def test_mypy_accepts_right_arguments_and_rejects_wrong_ones(tmp_path: Path) -> None:
    source = tmp_path / "typed_flow.py"
    source.write_text(TYPED + WRONG)
    right = TYPED.count("\n")
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
            str(source),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [
        line
        for line in checked.stdout.splitlines()
        if "typed_flow.py" in line and " error: " in line
    ]
    lines = [int(line.split(":")[1]) for line in errors]
    assert sorted(set(lines)) == [right + at for at in (2, 3, 4, 5)], checked.stdout


def test_importing_the_facade_imports_no_server() -> None:
    code = (
        "import sys, odin.workflow, odin.exceptions, odin.common;"
        "servers = {'fastapi', 'asyncpg', 'aio_pika', 'aiohttp', 'pydantic'};"
        "print(sorted(servers & set(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"
