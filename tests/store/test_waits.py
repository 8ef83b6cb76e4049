"""What Postgres does with a statement that has waited for a lock: the ground that the fence is on.

A server that differed in one of these would break every promise, so the one that is there is tried.
"""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import Store

from .scene import HookedStore, hooked_store
from .support import SHARDS, event, run, starting, until_waiting_for_a_lock
from .test_fence import COMMIT, COMMIT_NAME
from .test_nodes import set_lease

HELD = """
SELECT array_agg(held.shard_id) FROM (
    SELECT s.shard_id
    FROM unnest($2::integer[], $3::bigint[]) AS term (shard_id, range_id)
    JOIN shard AS s ON s.shard_id = term.shard_id
    WHERE s.owner = $1 AND s.range_id = term.range_id
    ORDER BY s.shard_id
    FOR SHARE OF s
) AS held
"""

BUMP = "SELECT * FROM bump_shards($1, $2, $3)"
CALL_AND_READ = "SELECT (SELECT count(*) FROM event) FROM bump_shards($1, $2, $3)"
UPDATE_AND_READ = """
WITH bumped AS (
    UPDATE shard SET range_id = range_id + 1
    WHERE owner = $1 AND shard_id = ANY ($2::integer[]) AND range_id = ANY ($3::bigint[])
    RETURNING shard_id
)
SELECT count(*) FROM event, bumped
"""


async def test_the_share_lock_judges_each_row_as_it_is_after_the_wait_and_keeps_the_order(
    dsn: str, store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """ORDER BY sorts before the rows are locked; a row that changed meanwhile is judged anew."""
    bumping = admin.transaction()
    await bumping.start()
    await admin.execute("UPDATE shard SET range_id = range_id + 1 WHERE shard_id IN (2, 5)")
    locker = await asyncpg.connect(dsn, timeout=10)
    ids = list(reversed(range(SHARDS)))
    async with asyncio.TaskGroup() as tasks:
        locking = tasks.create_task(
            locker.fetchval(HELD, store.incarnation, ids, [terms[one] for one in ids])
        )
        await until_waiting_for_a_lock(admin)
        await bumping.commit()
    await locker.close()
    assert locking.result() == [0, 1, 3, 4, 6, 7]


async def test_a_group_that_waited_writes_the_shards_that_are_still_its_own(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """The same inside of commit_group: the wait is in the middle of its rows."""
    bumping = admin.transaction()
    await bumping.start()
    await admin.execute("UPDATE shard SET range_id = range_id + 1 WHERE shard_id = 2")
    async with asyncio.TaskGroup() as tasks:
        group = starting(store.incarnation, terms, *(run(one, f"w-{one}") for one in (1, 2, 3)))
        writing = tasks.create_task(store.commit(group))
        await until_waiting_for_a_lock(admin)
        await bumping.commit()
    assert writing.result().refused == {2}
    assert await admin.fetchval("SELECT array_agg(shard_id ORDER BY 1) FROM event") == [1, 3]


async def test_a_lease_that_ends_while_its_renewal_waits_is_not_renewed(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    """clock_timestamp() is asked after the wait, although the row has not changed in it."""
    await set_lease(admin, store.incarnation, "300 milliseconds")
    until = await admin.fetchval("SELECT lease_until FROM node")
    holding = admin.transaction()
    await holding.start()
    await admin.execute("UPDATE node SET address = 'moved'")
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(store.renew(store.incarnation))
        await until_waiting_for_a_lock(admin)
        assert await admin.fetchval("SELECT clock_timestamp() < $1", until), "too slow to tell"
        while not await admin.fetchval("SELECT clock_timestamp() > $1", until):
            await asyncio.sleep(0.01)
        await holding.commit()
    assert renewing.result() is None
    assert await admin.fetchval("SELECT lease_until FROM node") == until


async def test_with_the_time_of_its_beginning_a_statement_would_renew_a_lease_that_is_over(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    """What clock_timestamp() is for: now() stands still from the transaction's first moment."""
    text = await admin.fetchval(
        "SELECT pg_get_functiondef('lease_is_over(timestamptz)'::regprocedure)"
    )
    assert text.count("clock_timestamp()") == 2
    await admin.execute(text.replace("clock_timestamp()", "now()"))
    await set_lease(admin, store.incarnation, "300 milliseconds")
    until = await admin.fetchval("SELECT lease_until FROM node")
    holding = admin.transaction()
    await holding.start()
    await admin.execute("UPDATE node SET address = 'moved'")
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(store.renew(store.incarnation))
        await until_waiting_for_a_lock(admin)
        assert await admin.fetchval("SELECT clock_timestamp() < $1", until), "too slow to tell"
        while not await admin.fetchval("SELECT clock_timestamp() > $1", until):
            await asyncio.sleep(0.01)
        await holding.commit()
    assert renewing.result() is not None


async def late_group(store: HookedStore, admin: "asyncpg.Connection[Any]", reader: str) -> object:
    """Let a group hang between its fence and its commit, run `reader`, let the group commit."""
    terms = {0: await store.acquire(0, store.incarnation, holds_term=False) or 0}
    await store.commit(starting(store.incarnation, terms, execution := run(0)))
    execution.next_event_id = 3
    group = starting(store.incarnation, terms)
    group.terms = dict(terms)
    group.updates[execution.run_id] = execution
    group.events.append(event(execution, 2))
    other = await asyncpg.connect(store._dsn, timeout=10)  # noqa: SLF001 - beside the store
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(group))
        await until_waiting_for_a_lock(admin)
        if reader == "two statements":
            reading = tasks.create_task(bump_then_read(store, other, terms))
        else:
            reading = tasks.create_task(other.fetchval(reader, store.incarnation, [0], [terms[0]]))
        await until_waiting_for_a_lock(admin, 2)
        await hanging.rollback()
    await other.close()
    assert not writing.result().refused
    return reading.result()


async def bump_then_read(
    store: Store, connection: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> object:
    await store.bump(store.incarnation, terms)
    return await connection.fetchval("SELECT count(*) FROM event")


async def test_a_read_after_the_bump_sees_the_late_group(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    async with hooked_store(dsn) as store:
        assert await late_group(store, admin, "two statements") == 2


@pytest.mark.parametrize(
    "together", [CALL_AND_READ, UPDATE_AND_READ], ids=["the function", "a plain update"]
)
async def test_a_bump_and_a_read_in_one_statement_would_miss_the_late_group(
    dsn: str, admin: "asyncpg.Connection[Any]", together: str
) -> None:
    """What two statements are for: the one statement's snapshot is older than its wait."""
    async with hooked_store(dsn) as store:
        assert await late_group(store, admin, together) == 1


async def test_locking_against_the_order_ends_in_a_deadlock_that_postgres_reports(
    dsn: str, store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """What the order of shards is for: a group that locks downwards and a bump that goes up."""
    text = await admin.fetchval(COMMIT)
    assert text.count("ORDER BY s.shard_id") == 1
    await admin.execute(text.replace("ORDER BY s.shard_id", "ORDER BY s.shard_id DESC"))
    # A lane gives up a lock sooner than Postgres looks for deadlocks: here it is to find this one.
    await admin.execute(f"ALTER FUNCTION {COMMIT_NAME} SET lock_timeout = '10s'")
    # The store's own bump would end the session that blocks it, at about the same time.
    plain = await asyncpg.connect(dsn, timeout=10)
    holding = admin.transaction()
    await holding.start()
    await admin.execute("SELECT FROM shard WHERE shard_id = 3 FOR UPDATE")
    group = starting(store.incarnation, terms, *(run(one, f"d-{one}") for one in terms))
    async with asyncio.TaskGroup() as tasks:
        outcomes = [
            tasks.create_task(outcome(store.commit(group))),
            tasks.create_task(
                outcome(plain.fetch(BUMP, store.incarnation, [*terms], [*terms.values()]))
            ),
        ]
        await until_waiting_for_a_lock(admin, 2)
        await holding.rollback()
    await plain.close()
    told = [str(one.result()) for one in outcomes]
    assert sum("deadlock detected" in one for one in told) == 1, told


async def outcome(call: Any) -> object:  # noqa: ANN401 - any call of the store
    """What a call returns or raises."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - the error is what is looked at
        return error
