"""The state of a run: packing, copies, dues, tokens."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.backoff import RetryPolicySpec
from odin.core.events import AttemptRecord, HistoryEvent
from odin.core.execution import (
    STATUSES,
    AcceptedReport,
    Execution,
    PendingActivity,
    PendingTimer,
    WorkflowTask,
    copy_of,
    due_us,
    next_token,
    pack_pending,
    pack_values,
    unpack_pending,
    unpack_values,
)
from odin.core.payload import Failure, Payload, encode

BARE = Execution(
    shard_id=3,
    namespace="default",
    workflow_id="order-1",
    run_id="r",
    first_run_id="r",
    workflow_type="order",
    task_queue="default",
    started_us=1,
)
WAITING = PendingActivity(
    1, "1", "charge", "default", 3, 1, RetryPolicySpec(), None, 60_000, None, None
)
INSTANTS = st.integers(0, 2**60)
NAMES = st.text(max_size=8)
TOKENS = st.integers(-(2**63), 2**63 - 1)
SPANS = st.none() | st.integers(0, 10**12)
PAYLOADS = st.builds(Payload, st.just("json"), st.binary(max_size=8))
FAILURES = st.builds(
    Failure,
    message=NAMES,
    type=NAMES,
    details=st.tuples(PAYLOADS),
    cause=st.none() | st.builds(Failure, message=NAMES),
)
ATTEMPTS = st.builds(
    AttemptRecord,
    attempt=st.integers(1, 9),
    claim_token=NAMES,
    worker=NAMES,
    started_us=INSTANTS,
    ended_us=INSTANTS,
    how=NAMES,
)
ACTIVITIES = st.builds(
    PendingActivity,
    command_id=st.integers(1, 99),
    activity_id=NAMES,
    activity_type=NAMES,
    task_queue=NAMES,
    scheduled_event_id=st.integers(1, 99),
    scheduled_us=INSTANTS,
    retry_policy=st.builds(RetryPolicySpec, maximum_attempts=st.integers(0, 9)),
    schedule_to_start_ms=SPANS,
    start_to_close_ms=SPANS,
    schedule_to_close_ms=SPANS,
    heartbeat_ms=SPANS,
    state=st.sampled_from(["scheduled", "started", "backoff"]),
    attempt=st.integers(0, 9),
    due_us=INSTANTS,
    claim_token=NAMES,
    heartbeat_details=st.tuples(PAYLOADS),
    last_failure=st.none() | FAILURES,
    attempts=st.lists(ATTEMPTS, max_size=3).map(tuple),
    cancel_requested=st.booleans(),
)
TASKS = st.builds(
    WorkflowTask,
    state=st.sampled_from(["none", "scheduled", "backoff"]),
    number=st.integers(0, 9),
    due_us=INSTANTS,
    last_failure=st.none() | FAILURES,
)
TIMERS = st.builds(PendingTimer, st.integers(1, 99), INSTANTS)
REPORTS = st.builds(AcceptedReport, NAMES, NAMES, st.integers(1, 9), st.integers(1, 9), TOKENS)


def by_id(things: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[int, Any]]:
    return st.lists(things, max_size=3).map(lambda found: {one.command_id: one for one in found})


EXECUTIONS = st.builds(
    Execution,
    shard_id=st.just(3),
    namespace=st.just("default"),
    workflow_id=st.just("order-1"),
    run_id=st.just("r"),
    first_run_id=st.just("r"),
    workflow_type=st.just("order"),
    task_queue=st.just("default"),
    status=st.sampled_from(STATUSES),
    started_us=INSTANTS,
    run_deadline_us=st.none() | INSTANTS,
    execution_deadline_us=st.none() | INSTANTS,
    workflow_task=TASKS,
    activities=by_id(ACTIVITIES),
    timers=by_id(TIMERS),
    reports=st.lists(REPORTS, max_size=4).map(tuple),
)


@given(execution=EXECUTIONS)
def test_what_is_pending_comes_back_from_the_row_as_it_was(execution: Execution) -> None:
    pending = unpack_pending(pack_pending(execution))
    assert pending.workflow_task == execution.workflow_task
    assert list(pending.activities.items()) == list(execution.activities.items())
    assert list(pending.timers.items()) == list(execution.timers.items())
    assert pending.reports == execution.reports


@given(execution=EXECUTIONS)
def test_a_copy_is_equal_and_its_changes_do_not_reach_the_original(execution: Execution) -> None:
    before = msgspec.msgpack.encode(execution)
    copy = copy_of(execution)
    assert copy == execution
    copy.status = "failed"
    copy.workflow_task.number += 1
    copy.activities[1_000] = WAITING
    copy.timers[1_000] = PendingTimer(1_000, 5)
    assert msgspec.msgpack.encode(execution) == before


@given(execution=EXECUTIONS)
def test_the_due_of_an_open_run_is_the_least_of_all_that_is_pending(execution: Execution) -> None:
    due = due_us(execution)
    if not execution.is_open:
        assert due is None
        assert not execution.has_scheduled_task
        return
    dues = {timer.fires_at_us for timer in execution.timers.values()}
    dues |= {activity.due_us for activity in execution.activities.values()}
    if execution.workflow_task.state != "none":
        dues.add(execution.workflow_task.due_us)
    deadlines = (execution.run_deadline_us, execution.execution_deadline_us)
    dues |= {deadline for deadline in deadlines if deadline is not None}
    assert due == min(dues, default=None)


@pytest.mark.parametrize(
    ("task", "activities", "expected"),
    [
        (WorkflowTask("scheduled"), {}, True),
        (WorkflowTask(), {1: WAITING}, True),
        (WorkflowTask(), {1: msgspec.structs.replace(WAITING, state="started")}, False),
        (WorkflowTask("backoff"), {1: msgspec.structs.replace(WAITING, state="backoff")}, False),
    ],
)
def test_a_new_owner_finds_the_runs_whose_tasks_wait(
    task: WorkflowTask,
    activities: dict[int, PendingActivity],
    expected: bool,  # noqa: FBT001 - a table
) -> None:
    execution = msgspec.structs.replace(BARE, workflow_task=task, activities=activities)
    assert execution.has_scheduled_task is expected
    closed = msgspec.structs.replace(execution, status="completed")
    assert not closed.has_scheduled_task


def test_a_pending_column_written_before_a_field_was_added_can_be_read() -> None:
    task = WorkflowTask("scheduled", 4, 2, 5)
    old = msgspec.msgpack.encode(([*msgspec.to_builtins(task)[:4]], {}, {}, ()))
    assert unpack_pending(old).workflow_task == task


@given(values=st.dictionaries(NAMES, PAYLOADS, max_size=4))
def test_named_values_come_back_and_none_cost_nothing(values: dict[str, Payload]) -> None:
    packed = pack_values(values)
    assert (packed is None) == (not values)
    assert unpack_values(packed) == values


def history(*types: str, first: int = 1) -> tuple[HistoryEvent, ...]:
    return tuple(HistoryEvent(first + n, type_, 0, b"") for n, type_ in enumerate(types))


@given(token=TOKENS, random=st.integers(0, 2**64 - 1))
def test_a_token_fits_the_column_and_is_never_the_token_of_no_history(
    token: int, random: int
) -> None:
    after = next_token(token, history("a"), random)
    assert -(2**63) <= after < 2**63
    assert after != 0
    assert after == next_token(token, history("a"), random)


@pytest.mark.parametrize(
    "other",
    [
        next_token(6, history("a", "b"), 7),
        next_token(5, history("a", "b"), 8),
        next_token(5, history("a"), 7),
        next_token(5, history("b", "a"), 7),
        next_token(5, history("a", "b", first=2), 7),
    ],
)
def test_another_history_has_another_token(other: int) -> None:
    assert other != next_token(5, history("a", "b"), 7)


def test_a_failure_of_many_causes_can_be_packed() -> None:
    failure = Failure("0", details=(encode(1),))
    for depth in range(1, 20):
        failure = Failure(str(depth), cause=failure)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure) == failure
