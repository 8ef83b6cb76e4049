"""What one group writes, and what a failure of it means."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import (
    Group,
    OutboxDelay,
    OutboxInsert,
    RequestWrite,
    Store,
    StoredRequest,
    WriteRaisedError,
)
from odin.core.execution import Execution, WorkflowTask
from odin.errors import OutcomeUnknownError

from .support import IDS, NOW_US, event, run, starting, until_waiting_for_a_lock


def updating(group: Group, execution: Execution, **changes: object) -> None:
    """Add the run's next image to the group, with one event."""
    execution.next_event_id += 1
    for name, value in changes.items():
        setattr(execution, name, value)
    group.updates[execution.run_id] = execution
    group.events.append(event(execution, execution.next_event_id - 1))


async def test_an_event_carries_the_range_and_the_transaction_that_wrote_it(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    await store.bump(store.incarnation, {0: terms[0]})
    await store.commit(starting(store.incarnation, {0: terms[0] + 1, 1: 1}, run(0), run(1, "b")))
    rows = await admin.fetch("SELECT shard_id, range_id, txid FROM event ORDER BY shard_id")
    assert [row["range_id"] for row in rows] == [terms[0] + 1, terms[1]]
    assert rows[0]["txid"] == rows[1]["txid"]
    assert await admin.fetchval("SELECT max(xmin::text::bigint) FROM event") == rows[0]["txid"]


async def test_a_closing_run_makes_room_for_the_next_one_in_the_same_group(
    store: Store, terms: dict[int, int]
) -> None:
    await store.commit(starting(store.incarnation, terms, first := run(0)))
    group = starting(store.incarnation, terms, second := run(0))
    updating(group, first, status="completed", closed_us=NOW_US + 5, workflow_task=WorkflowTask())
    await store.commit(group)
    found = await store.load_open(0, "default", "order-1")
    assert found is not None
    assert found.run_id == second.run_id


async def test_a_second_open_run_of_a_workflow_id_raises_and_writes_nothing(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    await store.commit(starting(store.incarnation, terms, run(0)))
    with pytest.raises(WriteRaisedError) as caught:
        await store.commit(starting(store.incarnation, terms, run(1, "other"), run(0)))
    assert caught.value.details["sqlstate"] == "23505"
    assert await admin.fetchval("SELECT count(*) FROM execution") == 1
    assert await admin.fetchval("SELECT count(*) FROM event") == 1


async def test_an_image_of_a_run_that_has_no_row_raises(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    group = starting(store.incarnation, terms, run(0))
    updating(group, run(0, "missing"))
    with pytest.raises(WriteRaisedError) as caught:
        await store.commit(group)
    assert caught.value.details["sqlstate"] == "OD001"
    assert await admin.fetchval("SELECT count(*) FROM execution") == 0


async def test_an_image_of_a_closed_run_raises(store: Store, terms: dict[int, int]) -> None:
    closed = run(0, status="completed", closed_us=NOW_US, workflow_task=WorkflowTask())
    await store.commit(starting(store.incarnation, terms, closed))
    group = Group(store.incarnation, terms={0: terms[0]})
    updating(group, closed)
    with pytest.raises(WriteRaisedError):
        await store.commit(group)


async def test_an_image_older_than_the_row_raises(store: Store, terms: dict[int, int]) -> None:
    await store.commit(starting(store.incarnation, terms, execution := run(0, next_event_id=7)))
    execution.next_event_id = 6
    group = Group(store.incarnation, {0: terms[0]}, updates={execution.run_id: execution})
    with pytest.raises(WriteRaisedError):
        await store.commit(group)


async def test_the_same_event_id_twice_raises(store: Store, terms: dict[int, int]) -> None:
    await store.commit(starting(store.incarnation, terms, execution := run(0)))
    group = Group(store.incarnation, {0: terms[0]}, events=[event(execution, 1)])
    with pytest.raises(WriteRaisedError) as caught:
        await store.commit(group)
    assert caught.value.details["sqlstate"] == "23505"


async def test_the_lane_goes_on_after_a_group_that_raised(
    store: Store, terms: dict[int, int]
) -> None:
    group = Group(store.incarnation, {0: terms[0]})
    updating(group, run(0, "missing"))
    with pytest.raises(WriteRaisedError):
        await store.commit(group)
    committed = await store.commit(starting(store.incarnation, terms, run(0)))
    assert not committed.refused


async def test_a_value_that_no_column_can_hold_raises(store: Store, terms: dict[int, int]) -> None:
    with pytest.raises(WriteRaisedError):
        await store.commit(starting(store.incarnation, terms, run(0, state_token=2**63)))
    with pytest.raises(WriteRaisedError):
        await store.commit(starting(store.incarnation, terms, run(0, build_id="a\0b")))


async def test_a_group_without_a_term_for_one_of_its_shards_is_not_sent(
    store: Store, terms: dict[int, int]
) -> None:
    group = starting(store.incarnation, terms, run(0))
    group.outbox.append(OutboxInsert(3, "w:default", b"task"))
    with pytest.raises(ValueError, match=r"\[3\]"):
        await store.commit(group)


async def test_outbox_ids_stand_in_the_order_of_the_rows(
    store: Store, terms: dict[int, int]
) -> None:
    await store.bump(store.incarnation, {2: terms[2]})
    rows = [OutboxInsert(n % 4, "w:default", str(n).encode()) for n in range(20)]
    group = Group(store.incarnation, {n: terms[n] for n in range(4)}, outbox=rows)
    committed = await store.commit(group)
    assert committed.refused == {2}
    stored = {row.outbox_id: row for n in range(4) for row in await store.outbox_all(n)}
    for row, outbox_id in zip(rows, committed.outbox_ids, strict=True):
        if row.shard_id == 2:
            assert outbox_id == 0
        else:
            assert (stored[outbox_id].shard_id, stored[outbox_id].body) == (row.shard_id, row.body)
    assert list(filter(None, committed.outbox_ids)) == sorted(filter(None, committed.outbox_ids))


async def test_outbox_rows_are_deleted_and_delayed_without_a_count(
    store: Store, terms: dict[int, int]
) -> None:
    rows = [OutboxInsert(0, "w:default", b"%d" % n) for n in range(3)]
    ids = (await store.commit(Group(store.incarnation, {0: terms[0]}, outbox=rows))).outbox_ids
    group = Group(
        store.incarnation,
        {0: terms[0]},
        outbox_deletes=[(0, ids[0]), (0, ids[0]), (0, 999_999)],
        outbox_delays=[OutboxDelay(0, ids[1], 4, NOW_US), OutboxDelay(0, 999_998, 1, NOW_US)],
    )
    assert not (await store.commit(group)).refused
    assert not (await store.commit(group)).refused
    left = await store.outbox_all(0)
    assert [(row.outbox_id, row.publish_count) for row in left] == [(ids[1], 4), (ids[2], 0)]
    assert [row.outbox_id for row in await store.outbox_due([0, 1], NOW_US, 10)] == [ids[1]]
    assert [row.body for row in await store.outbox_all(0, after=ids[1])] == [b"2"]


async def test_an_acknowledged_request_is_found_again_and_cannot_be_written_twice(
    store: Store, terms: dict[int, int]
) -> None:
    execution = run(0)
    group = starting(store.incarnation, terms, execution)
    row = RequestWrite(0, "default", "order-1", "r1", "start", execution.run_id, 1, b"hash")
    group.requests.append(row)
    await store.commit(group)
    found = await store.load_request(0, "default", "order-1", "r1")
    assert found == StoredRequest("start", execution.run_id, 1, b"hash")
    assert await store.load_request(0, "default", "order-1", "r2") is None
    with pytest.raises(WriteRaisedError):
        await store.commit(Group(store.incarnation, {0: terms[0]}, requests=[row]))


async def test_a_lost_connection_leaves_the_outcome_unknown_and_the_lane_replaces_it(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    lane = f"odin-engine/{store.incarnation}/lane0"
    with pytest.raises(OutcomeUnknownError):
        async with asyncio.TaskGroup() as tasks:
            failing = tasks.create_task(_outcome(store, starting(store.incarnation, terms, run(0))))
            ended = False
            async with asyncio.timeout(5):
                while not ended:
                    ended = await admin.fetchval(
                        "SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity"
                        " WHERE application_name = $1 AND wait_event_type = 'Lock'",
                        lane,
                    )
        raise failing.result()
    await hanging.rollback()
    assert await store.bump(store.incarnation, {0: terms[0]}) == {0: terms[0] + 1}
    committed = await store.commit(starting(store.incarnation, {0: terms[0] + 1}, run(0)))
    assert not committed.refused


async def test_a_cancelled_commit_never_reuses_its_connection(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    lane = f"odin-engine/{store.incarnation}/lane0"
    pid_of = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"
    before = await admin.fetchval(pid_of, lane)
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(starting(store.incarnation, terms, run(0))))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(5):
            while not await admin.fetchval(waiting, before):
                await asyncio.sleep(0.005)
        writing.cancel()
    assert writing.cancelled()
    await hanging.rollback()
    bumped = await store.bump(store.incarnation, {0: terms[0]})
    assert not (await store.commit(starting(store.incarnation, bumped, run(0, "b")))).refused
    assert before not in [row[0] for row in await admin.fetch(pid_of, lane)]


async def test_the_due_bound_stays_while_it_holds_and_moves_once_it_is_past(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """A run on its way changes no indexed column; whoever finds nothing due writes it again."""
    now_us = (await store.cluster_view()).db_now_us
    execution = run(0, workflow_task=WorkflowTask("scheduled", 1, 1, now_us + 10_000_000))
    await store.commit(starting(store.incarnation, terms, execution))

    async def due_after_writing(due_us: int) -> int:
        execution.workflow_task = WorkflowTask("scheduled", 1, 1, due_us)
        group = Group(store.incarnation, {0: terms[0]}, updates={execution.run_id: execution})
        await store.commit(group)
        ((_, _, stored_us),) = await store.due_before([0], 2**60, 10)
        return stored_us

    assert await due_after_writing(now_us + 60_000_000) == now_us + 10_000_000
    assert await due_after_writing(now_us + 5_000_000) == now_us + 5_000_000
    assert await due_after_writing(now_us + 900_000_000) == now_us + 900_000_000
    await admin.execute("UPDATE execution SET due_at = from_us($1)", now_us - 1)
    assert await due_after_writing(now_us + 30_000_000) == now_us + 30_000_000


async def test_a_step_of_a_run_on_its_way_touches_no_index(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    now_us = (await store.cluster_view()).db_now_us
    idle = run(0, workflow_task=WorkflowTask(), run_deadline_us=now_us + 60_000_000)
    await store.commit(starting(store.incarnation, terms, idle))
    for _ in range(3):
        group = Group(store.incarnation, {0: terms[0]})
        updating(group, idle, state_token=idle.state_token + 1, last_event_us=now_us)
        await store.commit(group)
    async with store.fenced(0, terms[0]) as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    counts = await admin.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'execution'"
    )
    assert tuple(counts or ()) == (3, 3)


async def test_a_run_that_goes_from_task_to_task_touches_no_index(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    now_us = (await store.cluster_view()).db_now_us
    waits = WorkflowTask("scheduled", 1, 1, now_us + 10_000_000)
    execution = run(0, workflow_task=waits, run_deadline_us=now_us + 60_000_000)
    await store.commit(starting(store.incarnation, terms, execution))

    async def write(task: WorkflowTask) -> None:
        execution.workflow_task = task
        group = Group(store.incarnation, {0: terms[0]}, updates={execution.run_id: execution})
        await store.commit(group)

    for task in (WorkflowTask(), waits, WorkflowTask(), waits, WorkflowTask()):
        await write(task)
    async with store.fenced(0, terms[0]) as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    counts = await admin.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'execution'"
    )
    assert tuple(counts or ()) == (5, 5)
    assert await store.scheduled_tasks(0) == [execution.run_id]

    execution.run_deadline_us = now_us + 900_000_000
    await write(WorkflowTask())
    assert await store.scheduled_tasks(0) == []


async def test_a_store_closes_though_a_commit_hangs(
    dsn: str, store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        failing = tasks.create_task(_outcome(store, starting(store.incarnation, terms, run(0))))
        await until_waiting_for_a_lock(admin)
        await store.close()
    assert isinstance(failing.result(), OutcomeUnknownError | WriteRaisedError)
    await hanging.rollback()


async def test_an_empty_group_of_unknown_shards_is_refused_whole(store: Store) -> None:
    committed = await store.commit(Group(IDS.incarnation(), {0: 1, 1: 1}))
    assert committed.refused == {0, 1}


async def _outcome(store: Store, group: Group) -> Exception:
    try:
        await store.commit(group)
    except (OutcomeUnknownError, WriteRaisedError) as error:
        return error
    raise AssertionError("the commit should not have returned")
