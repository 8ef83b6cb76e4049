# ruff: noqa: A004, C901, PLE0643, TRY301 - failing code is what is tested

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from odin import workflow
from odin.common import RetryPolicy
from odin.core import commands as c
from odin.core import events as e
from odin.core.failures import WorkflowTaskError
from odin.core.payload import Failure
from odin.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError
from tests.core.replay_owner import START_US, Owner


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
            return {1, float("nan")}  # type: ignore[return-value] # a wrong result is tested
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
        assert "test_instance_failures.py:" in failure.source


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
