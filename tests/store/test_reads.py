"""What is written comes back: exactly, in pages, and by every path that a reader takes."""

from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.store import ExecutionFilter, Group, OutboxInsert, Store
from odin.core.backoff import RetryPolicySpec
from odin.core.events import AttemptRecord
from odin.core.execution import (
    STATUSES,
    AcceptedReport,
    Execution,
    PendingActivity,
    PendingTimer,
    WorkflowTask,
    pack_values,
)
from odin.core.payload import Failure, Payload

from .support import IDS, NOW_US, event, run, starting

BIGINT = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1)
INSTANT = st.integers(0, 4_000_000_000_000_000)
NAME = st.text("abcXYZ019._:@-", min_size=1, max_size=20)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
BLOB = st.none() | st.binary(max_size=40)
PACKED = st.dictionaries(NAME, st.builds(Payload, NAME, st.binary(max_size=20)), max_size=2).map(
    pack_values
)
PAYLOADS = st.lists(st.builds(Payload, NAME, st.binary(max_size=20)), max_size=2).map(tuple)
FAILURES = st.none() | st.builds(Failure, message=TEXT, details=PAYLOADS)
ATTEMPTS = st.builds(
    AttemptRecord,
    attempt=COUNT,
    claim_token=NAME,
    worker=NAME,
    started_us=INSTANT,
    ended_us=INSTANT,
    how=NAME,
)
ACTIVITIES = st.builds(
    PendingActivity,
    command_id=COUNT,
    activity_id=NAME,
    activity_type=NAME,
    task_queue=NAME,
    scheduled_event_id=COUNT,
    scheduled_us=INSTANT,
    retry_policy=st.just(RetryPolicySpec(maximum_attempts=3)),
    schedule_to_start_ms=st.none() | COUNT,
    start_to_close_ms=st.none() | COUNT,
    schedule_to_close_ms=st.none() | COUNT,
    heartbeat_ms=st.none() | COUNT,
    state=st.sampled_from(["scheduled", "started", "backoff"]),
    due_us=INSTANT,
    heartbeat_details=PAYLOADS,
    last_failure=FAILURES,
    attempts=st.lists(ATTEMPTS, max_size=2).map(tuple),
    cancel_requested=st.booleans(),
)
CHANGING = {
    "build_id": TEXT,
    "state_token": BIGINT,
    "task_token": BIGINT,
    "last_event_us": INSTANT,
    "run_deadline_us": st.none() | INSTANT,
    "execution_deadline_us": st.none() | INSTANT,
    "cancel_requested": st.booleans(),
    "last_message_event_id": COUNT,
    "last_visible_event_id": COUNT,
    "signal_count": COUNT,
    "history_bytes": st.integers(0, 2**62),
    "memo": PACKED,
    "search_attributes": PACKED,
    "workflow_task": st.builds(
        WorkflowTask,
        state=st.sampled_from(["none", "scheduled", "backoff"]),
        number=COUNT,
        due_us=INSTANT,
        pushed=st.booleans(),
        last_failure=FAILURES,
    ),
    "activities": st.dictionaries(COUNT, ACTIVITIES, max_size=2),
    "timers": st.dictionaries(COUNT, st.builds(PendingTimer, COUNT, INSTANT), max_size=2),
    "reports": st.lists(
        st.builds(AcceptedReport, NAME, NAME, COUNT, COUNT, BIGINT), max_size=2
    ).map(tuple),
}
FIXED = {
    "namespace": NAME,
    "workflow_type": TEXT,
    "task_queue": TEXT,
    "origin": TEXT,
    "started_us": INSTANT,
    "task_timeout_ms": st.integers(0, 2**62),
    "parent": BLOB,
}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    begun=st.fixed_dictionaries({**FIXED, **CHANGING}),
    changed=st.fixed_dictionaries(CHANGING),
    status=st.sampled_from(STATUSES),
)
async def test_an_execution_comes_back_as_it_was_written_and_as_it_was_changed(
    store: Store,
    terms: dict[int, int],
    begun: dict[str, Any],
    changed: dict[str, Any],
    status: str,
) -> None:
    execution = Execution(
        shard_id=1,
        run_id=IDS.run_id(),
        first_run_id=IDS.run_id(),
        workflow_id=IDS.request_id(),
        next_event_id=2,
        **begun,
    )
    await store.commit(starting(store.incarnation, terms, execution))
    assert await store.load_execution(1, execution.run_id) == execution

    for name, value in {**changed, "status": status, "next_event_id": 3}.items():
        setattr(execution, name, value)
    execution.closed_us = None if status == "running" else NOW_US
    group = Group(store.incarnation, {1: terms[1]}, updates={execution.run_id: execution})
    await store.commit(group)
    assert await store.load_execution(1, execution.run_id) == execution
    assert await store.load_many([(1, execution.run_id), (1, IDS.run_id())]) == {
        execution.run_id: execution
    }


async def test_what_cannot_be_a_run_id_is_found_nowhere(store: Store) -> None:
    for run_id in ("", "nonsense", IDS.run_id()):
        assert await store.load_execution(0, run_id) is None
        assert await store.load_many([(0, run_id)]) == {}
        assert await store.events(0, run_id) == []
        assert await store.describe(0, "default", "order-1", run_id) is None


async def test_the_latest_run_is_the_open_one_else_the_newest(
    store: Store, terms: dict[int, int]
) -> None:
    closed = [
        run(
            0,
            status="completed",
            closed_us=NOW_US,
            started_us=NOW_US + n,
            workflow_task=WorkflowTask(),
        )
        for n in (1, 3, 2)
    ]
    await store.commit(starting(store.incarnation, terms, *closed))
    assert await store.load_open(0, "default", "order-1") is None
    assert await store.load_latest(0, "default", "order-1") == closed[1]
    await store.commit(starting(store.incarnation, terms, opened := run(0, started_us=NOW_US)))
    assert await store.load_latest(0, "default", "order-1") == opened
    assert await store.describe(0, "default", "order-1") == opened
    assert await store.describe(0, "default", "order-1", closed[0].run_id) == closed[0]
    assert await store.describe(0, "default", "order-2", closed[0].run_id) is None
    assert await store.load_latest(0, "elsewhere", "order-1") is None


async def test_a_history_is_paged_by_count_and_by_bytes_in_both_directions(
    store: Store, terms: dict[int, int]
) -> None:
    execution = run(0, next_event_id=8)
    group = starting(store.incarnation, terms, execution)
    group.events = [event(execution, n, size=100 if n != 4 else 5_000) for n in range(1, 8)]
    await store.commit(group)

    async def forward(**bounds: int) -> list[int]:
        return [one.event_id for one in await store.events(0, execution.run_id, **bounds)]

    async def backward(**bounds: int) -> list[int]:
        page = await store.events_newest_first(0, execution.run_id, **bounds)
        return [one.event_id for one in page]

    assert await forward() == [1, 2, 3, 4, 5, 6, 7]
    assert await forward(after=2, upto=5) == [3, 4, 5]
    assert await forward(after=1, limit=2) == [2, 3]
    assert await forward(bytes_max=250) == [1, 2]
    assert await forward(after=3, bytes_max=250) == [4], "a large event comes alone, but comes"
    assert await backward(limit=3) == [7, 6, 5]
    assert await backward(before=5, bytes_max=250) == [4]
    assert await backward(before=3) == [2, 1]
    assert (await store.events(0, execution.run_id))[3] == group.events[3].event


async def test_due_runs_come_by_time_and_in_pages(store: Store, terms: dict[int, int]) -> None:
    runs = [
        run(n % 3, f"order-{n}", workflow_task=WorkflowTask("backoff", 1, 1, NOW_US + n))
        for n in range(9)
    ]
    await store.commit(starting(store.incarnation, terms, *runs))
    first = await store.due_before([0, 1], NOW_US + 7, 3)
    assert [due_us - NOW_US for _, _, due_us in first] == [0, 1, 3]
    assert first[0] == (0, runs[0].run_id, NOW_US)
    rest = await store.due_before([0, 1], NOW_US + 7, 9, after=(first[-1][2], first[-1][1]))
    assert [due_us - NOW_US for _, _, due_us in rest] == [4, 6, 7]


async def test_only_open_runs_with_a_task_to_be_taken_are_paged_through(
    store: Store, terms: dict[int, int]
) -> None:
    waiting = [run(0, f"order-{n}") for n in range(3)]
    idle = run(0, "idle", workflow_task=WorkflowTask())
    elsewhere = run(1, "elsewhere")
    await store.commit(starting(store.incarnation, terms, *waiting, idle, elsewhere))
    ordered = sorted(one.run_id for one in waiting)
    page = await store.scheduled_tasks(0, limit=2)
    assert page == ordered[:2]
    assert await store.scheduled_tasks(0, after=page[-1]) == ordered[2:]


async def test_executions_are_listed_newest_first_narrowed_and_in_pages(
    store: Store, terms: dict[int, int]
) -> None:
    closed = {"status": "failed", "closed_us": NOW_US, "workflow_task": WorkflowTask()}
    runs = [
        run(
            n % 4,
            f"order-{n}",
            started_us=NOW_US + n // 2,
            origin="visitors" if n < 4 else "benchmark",
            workflow_type="even" if n % 2 == 0 else "odd",
            **(closed if n == 5 else {}),
        )
        for n in range(8)
    ]
    await store.commit(starting(store.incarnation, terms, *runs))
    newest = sorted(runs, key=lambda one: (one.started_us, one.run_id), reverse=True)

    async def listed(before: tuple[int, str] | None = None, **fields: object) -> list[str]:
        wanted = msgspec.convert(fields, ExecutionFilter)
        lines = await store.list_executions(wanted, before=before, limit=5)
        return [line.run_id for line in lines]

    assert await listed() == [one.run_id for one in newest[:5]]
    last = newest[4]
    assert await listed((last.started_us, last.run_id)) == [one.run_id for one in newest[5:]]
    assert await listed(status="failed") == [runs[5].run_id]
    assert await listed(workflow_type="even", origin="visitors") == [runs[2].run_id, runs[0].run_id]
    assert await listed(workflow_id="order-3") == [runs[3].run_id]
    assert await listed(started_from_us=NOW_US + 1, started_before_us=NOW_US + 2) == [
        one.run_id for one in newest if one.started_us == NOW_US + 1
    ]
    assert await listed(namespace="elsewhere") == []
    (line,) = await store.list_executions(ExecutionFilter(workflow_id="order-5"))
    assert (line.status, line.closed_us, line.history_length) == ("failed", NOW_US, 1)


async def test_counts_are_per_shard(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    closed = run(1, status="failed", closed_us=NOW_US, workflow_task=WorkflowTask())
    group = starting(store.incarnation, terms, run(0, "a"), run(0, "b"), run(2, "c"), closed)
    group.outbox = [OutboxInsert(0, "w:default", b"task"), OutboxInsert(2, "w:default", b"task")]
    await store.commit(group)
    await admin.execute("ANALYZE execution")
    assert await store.open_counts() == {0: 2, 2: 1}
    assert await store.outbox_counts() == {0: 1, 2: 1}
    assert (await store.table_estimates())["execution"] == 4


@pytest.mark.parametrize("us", [0, 1, NOW_US, 4_102_444_800_999_999, 9_007_199_254_740_991])
async def test_instants_are_converted_without_loss(
    admin: "asyncpg.Connection[Any]", us: int
) -> None:
    assert await admin.fetchval("SELECT to_us(from_us($1))", us) == us
