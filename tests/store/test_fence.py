"""The fence: no write of an old range can land once a new one has begun."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import Committed, Group, Store
from engine.store.connections import SQL
from odin.errors import NotOwnerError

from .support import event, run, starting, until_waiting_for_a_lock

COMMIT_NAME = SQL["commit_group"].partition("(")[0].rsplit(maxsplit=1)[-1]
COMMIT = (
    "SELECT pg_get_functiondef(oid) FROM pg_proc"
    f" WHERE proname = '{COMMIT_NAME}' AND pronamespace = 'public'::regnamespace"
)


async def mutate(admin: "asyncpg.Connection[Any]", guard: str, replacement: str) -> None:
    """Replace a guard inside the function that commits, in this test's database only."""
    text = await admin.fetchval(COMMIT)
    assert text.count(guard) == 1, f"{guard!r} is not the guard any more"
    await admin.execute(text.replace(guard, replacement))


async def commit_while_a_taker_has_not_committed(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", group: Group
) -> Committed:
    """Send `group` while the rival's acquisition of shard 0 is executed and not yet committed."""
    taking = admin.transaction()
    await taking.start()
    await admin.execute("UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation)
    taken = await admin.fetchval("SELECT acquire_shard(0, $1, false)", rival.incarnation)
    assert taken == group.terms[0] + 1
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(group))
        await until_waiting_for_a_lock(admin)
        assert not writing.done()
        await taking.commit()
    return writing.result()


async def test_a_write_waits_for_an_acquisition_under_way_and_is_then_refused(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    group = starting(store.incarnation, terms, run(0))
    committed = await commit_while_a_taker_has_not_committed(store, rival, admin, group)
    assert committed.refused == {0}
    assert await admin.fetchval("SELECT count(*) FROM execution") == 0
    assert await admin.fetchval("SELECT count(*) FROM event") == 0


async def test_an_acquisition_waits_for_a_group_under_way(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """The group has passed its check and hangs further on: the new term must not begin yet."""
    await admin.execute("UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation)
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(starting(store.incarnation, terms, run(0))))
        await until_waiting_for_a_lock(admin)
        taking = tasks.create_task(rival.acquire(0, rival.incarnation, holds_term=False))
        await until_waiting_for_a_lock(admin, 2)
        assert not taking.done()
        await hanging.rollback()
    assert not writing.result().refused
    assert taking.result() == terms[0] + 1


async def test_without_the_share_lock_a_group_under_way_would_land_in_the_next_term(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """What the lock is for: the new owner has read its shard before the stale write lands in it."""
    await mutate(admin, "FOR SHARE OF s", "")
    await admin.execute("UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation)
    execution = run(0)
    hanging = admin.transaction()
    await hanging.start()
    await admin.execute("LOCK TABLE event IN SHARE MODE")
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(starting(store.incarnation, terms, execution)))
        await until_waiting_for_a_lock(admin)
        assert await rival.acquire(0, rival.incarnation, holds_term=False) == terms[0] + 1
        assert await rival.events(0, execution.run_id) == []
        await hanging.rollback()
    assert not writing.result().refused
    assert len(await rival.events(0, execution.run_id)) == 1


async def test_without_the_share_lock_a_write_would_not_wait_for_an_acquisition(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    await mutate(admin, "FOR SHARE OF s", "")
    taking = admin.transaction()
    await taking.start()
    await admin.execute("UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation)
    await admin.fetchval("SELECT acquire_shard(0, $1, false)", rival.incarnation)
    committed = await store.commit(starting(store.incarnation, terms, run(0)))
    await taking.commit()
    assert not committed.refused


async def test_a_write_of_an_old_range_is_refused(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    await store.bump(store.incarnation, {0: terms[0]})
    committed = await store.commit(starting(store.incarnation, terms, run(0)))
    assert committed.refused == {0}
    assert await admin.fetchval("SELECT count(*) FROM event") == 0


async def test_a_write_of_another_incarnation_is_refused(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    committed = await rival.commit(starting(rival.incarnation, terms, run(0)))
    assert committed.refused == {0}
    assert await admin.fetchval("SELECT count(*) FROM event") == 0


@pytest.mark.parametrize(
    ("guard", "replacement"),
    [("AND s.range_id = term.range_id", ""), ("s.owner = p_incarnation", "true")],
)
async def test_without_its_half_of_the_check_a_stale_write_would_land(
    store: Store,
    rival: Store,
    admin: "asyncpg.Connection[Any]",
    terms: dict[int, int],
    guard: str,
    replacement: str,
) -> None:
    """What each half of the check is for: the range for one's own past, the owner for others."""
    await mutate(admin, guard, replacement)
    writer, group_terms = store, terms
    if guard.startswith("AND"):
        await store.bump(store.incarnation, {0: terms[0]})
    else:
        writer = rival
    committed = await writer.commit(starting(writer.incarnation, group_terms, run(0)))
    assert not committed.refused
    assert await admin.fetchval("SELECT count(*) FROM event") == 1


async def test_an_acquisition_waits_for_a_write_under_way_and_then_sees_it(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    execution = run(0)
    await store.commit(starting(store.incarnation, terms, execution))
    async with asyncio.TaskGroup() as tasks, store.fenced(0, terms[0]) as connection:
        await admin.execute(
            "UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation
        )
        taking = tasks.create_task(rival.acquire(0, rival.incarnation, holds_term=False))
        await until_waiting_for_a_lock(admin)
        assert not taking.done()
        await connection.execute("UPDATE execution SET build_id = 'late'")
    assert taking.result() == terms[0] + 1
    found = await rival.load_execution(0, execution.run_id)
    assert found is not None
    assert found.build_id == "late"


async def test_one_lost_shard_costs_the_others_of_the_group_nothing(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    await store.commit(starting(store.incarnation, terms, old := run(0), kept := run(1)))
    await store.bump(store.incarnation, {0: terms[0]})
    group = starting(store.incarnation, terms, run(0, "order-2"), started := run(2, "order-3"))
    group.terms[1] = terms[1]
    for execution in (old, kept):
        execution.next_event_id = 3
        group.updates[execution.run_id] = execution
        group.events.append(event(execution, 2))
    committed = await store.commit(group)
    assert committed.refused == {0}
    written = await admin.fetch("SELECT run_id::text, event_id FROM event WHERE range_id > 0")
    assert {tuple(row) for row in written} == {
        (old.run_id, 1),
        (kept.run_id, 1),
        (kept.run_id, 2),
        (started.run_id, 1),
    }
    assert await admin.fetchval("SELECT count(*) FROM execution WHERE next_event_id = 3") == 1


async def test_rare_work_of_an_old_term_is_refused(store: Store, terms: dict[int, int]) -> None:
    await store.bump(store.incarnation, {0: terms[0]})
    with pytest.raises(NotOwnerError):
        async with store.fenced(0, terms[0]):
            pytest.fail("the term was over")
    async with store.fenced(0, terms[0] + 1) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_bump_and_a_late_group_of_the_same_shards_do_not_deadlock(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    """Both lock in shard order: whoever has the lowest row goes on, the other waits for it."""
    backwards = dict(sorted(terms.items(), reverse=True))
    holding = admin.transaction()
    await holding.start()
    await admin.execute("SELECT FROM shard WHERE shard_id = 3 FOR UPDATE")
    group = starting(store.incarnation, terms, *(run(shard_id) for shard_id in backwards))
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.commit(group))
        bumping = tasks.create_task(store.bump(store.incarnation, backwards))
        await until_waiting_for_a_lock(admin, 2)
        await holding.rollback()
    bumped = bumping.result()
    assert bumped == {shard_id: range_id + 1 for shard_id, range_id in terms.items()}
    assert writing.result().refused in (frozenset(), frozenset(terms))
