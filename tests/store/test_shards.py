"""Terms: who may take a shard, and what every way of beginning and ending one leaves behind."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import Store
from engine.store.errors import CALL_ERRORS
from odin.errors import ConfigurationError

from .support import IDS, SHARDS, until_waiting_for_a_lock
from .test_nodes import set_lease


async def taken_by(store: Store, *, holds_term: bool = False) -> int | None:
    return await store.acquire(0, store.incarnation, holds_term=holds_term)


async def happenings(admin: "asyncpg.Connection[Any]", shard_id: int = 0) -> list[tuple[Any, ...]]:
    rows = await admin.fetch(
        "SELECT range_id, happening, incarnation FROM shard_term WHERE shard_id = $1"
        " ORDER BY range_id, at",
        shard_id,
    )
    return [tuple(row) for row in rows]


async def test_a_cluster_is_created_once_and_another_configuration_is_refused(store: Store) -> None:
    await store.open_cluster(SHARDS, "sharded")
    assert len((await store.cluster_view()).shards) == SHARDS
    with pytest.raises(ConfigurationError):
        await store.open_cluster(SHARDS + 1, "sharded")
    with pytest.raises(ConfigurationError):
        await store.open_cluster(SHARDS, "standby")
    assert len((await store.cluster_view()).shards) == SHARDS


async def test_engines_that_start_together_agree_on_one_cluster(dsn: str) -> None:
    async with Store(dsn, IDS.incarnation()) as one, Store(dsn, IDS.incarnation()) as other:
        async with asyncio.TaskGroup() as tasks:
            for store in (one, other):
                tasks.create_task(store.open_cluster(16, "standby"))
        assert len((await one.cluster_view()).shards) == 16


async def test_a_shard_that_nobody_has_owned_is_taken_under_range_1(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    assert await taken_by(store) == 1
    assert await happenings(admin) == [(1, "acquired", store.incarnation)]


async def test_a_shard_of_a_living_node_is_not_taken(store: Store, rival: Store) -> None:
    assert await taken_by(store) == 1
    assert await taken_by(rival) is None


async def test_an_expired_owner_keeps_its_shard_until_it_is_marked_dead(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await taken_by(store)
    await set_lease(admin, store.incarnation, "-1 second")
    assert await taken_by(rival) is None
    await rival.mark_dead_expired()
    assert await taken_by(rival) == 2
    assert await happenings(admin) == [
        (1, "acquired", store.incarnation),
        (1, "expired", store.incarnation),
        (2, "acquired", rival.incarnation),
    ]


async def test_an_owner_whose_row_is_missing_is_not_dead(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await taken_by(store)
    await admin.execute("DELETE FROM node WHERE incarnation = $1", store.incarnation)
    assert await taken_by(rival) is None


async def test_an_owner_without_a_term_takes_its_own_shard_again(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await taken_by(store)
    assert await taken_by(store, holds_term=True) is None
    assert await taken_by(store) == 2
    assert (1, "expired", store.incarnation) in await happenings(admin)


@pytest.mark.parametrize("change", ["draining", "dead", "expired", "far ahead", "missing"])
async def test_a_node_that_does_not_live_takes_nothing(
    store: Store, admin: "asyncpg.Connection[Any]", change: str
) -> None:
    me = store.incarnation
    match change:
        case "draining":
            await store.set_draining(me)
        case "dead":
            await store.set_dead(me)
        case "expired":
            await set_lease(admin, me, "-1 second")
        case "far ahead":
            await set_lease(admin, me, "21 seconds")
        case _:
            await admin.execute("DELETE FROM node WHERE incarnation = $1", me)
    assert await taken_by(store) is None


async def test_a_released_shard_waits_three_seconds_for_its_heir(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await taken_by(store)
    assert await store.release(0, store.incarnation, 1, heir=rival.incarnation)
    assert await taken_by(store) is None
    await admin.execute("UPDATE shard SET released_at = released_at - interval '3 seconds'")
    assert await taken_by(store) == 2
    assert await happenings(admin) == [
        (1, "acquired", store.incarnation),
        (1, "released", store.incarnation),
        (2, "acquired", store.incarnation),
    ]


async def test_the_heir_takes_a_released_shard_at_once_and_is_heir_no_longer(
    store: Store, rival: Store
) -> None:
    await taken_by(store)
    await store.release(0, store.incarnation, 1, heir=rival.incarnation)
    assert await taken_by(rival) == 2
    shard = (await rival.cluster_view()).shards[0]
    assert (shard.owner, shard.heir, shard.released_at_us, shard.range_id) == (
        rival.incarnation,
        None,
        None,
        2,
    )


async def test_a_shard_released_to_nobody_is_taken_at_once(store: Store, rival: Store) -> None:
    await taken_by(store)
    await store.release(0, store.incarnation, 1, heir=None)
    assert await taken_by(rival) == 2


async def test_a_dead_heir_is_not_waited_for(store: Store, rival: Store) -> None:
    await taken_by(store)
    await store.release(0, store.incarnation, 1, heir=rival.incarnation)
    await rival.set_dead(rival.incarnation)
    assert await taken_by(store) == 2


async def test_a_release_of_an_old_range_or_of_another_s_shard_does_nothing(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await taken_by(store)
    await store.bump(store.incarnation, {0: 1})
    assert not await store.release(0, store.incarnation, 1, heir=None)
    assert not await store.release(0, rival.incarnation, 2, heir=None)
    assert (await store.cluster_view()).shards[0].owner == store.incarnation
    assert await store.release(0, store.incarnation, 2, heir=None)
    assert not await store.release(0, store.incarnation, 2, heir=None)


async def test_a_bump_begins_new_terms_of_exactly_what_is_held_under_the_given_range(
    store: Store, rival: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    assert await store.bump(store.incarnation, {0: terms[0], 1: terms[1] + 5}) == {0: terms[0] + 1}
    assert await store.bump(store.incarnation, {0: terms[0]}) == {}, "a late copy does nothing"
    assert await rival.bump(rival.incarnation, {2: terms[2]}) == {}
    shards = (await store.cluster_view()).shards
    assert [shard.range_id for shard in shards[:3]] == [terms[0] + 1, terms[1], terms[2]]
    assert {shard.owner for shard in shards} == {store.incarnation}
    assert (await happenings(admin))[-1] == (terms[0] + 1, "bumped", store.incarnation)


async def test_a_bump_never_makes_an_owner(store: Store, rival: Store) -> None:
    await taken_by(store)
    await store.release(0, store.incarnation, 1, heir=None)
    assert await store.bump(store.incarnation, {0: 1}) == {}
    await taken_by(rival)
    assert await store.bump(store.incarnation, {0: 2}) == {}
    assert (await store.cluster_view()).shards[0].owner == rival.incarnation


async def test_an_acquisition_that_waited_is_judged_by_what_stands_after_the_wait(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    """Neither the owner nor the taker's own life is taken from before the wait."""
    await taken_by(store)
    await store.set_dead(store.incarnation)
    holding = admin.transaction()
    await holding.start()
    await admin.execute("SELECT FROM shard WHERE shard_id = 0 FOR UPDATE")
    async with asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(taken_by(rival))
        await until_waiting_for_a_lock(admin)
        assert await store.set_dead(rival.incarnation)
        await holding.rollback()
    assert taking.result() is None


async def test_two_takers_of_one_shard_get_one_term(store: Store, rival: Store) -> None:
    async with asyncio.TaskGroup() as tasks:
        takers = [tasks.create_task(taken_by(one)) for one in (store, rival)]
    assert sorted((taker.result() for taker in takers), key=str) == [1, None]


async def test_a_frozen_dead_owner_s_lock_is_taken_from_it(
    dsn: str, store: Store, rival: Store, terms: dict[int, int]
) -> None:
    """A process frozen inside a transaction cannot give its lock back: its session is ended."""
    frozen = await asyncpg.connect(
        dsn, server_settings={"application_name": f"odin-engine/{store.incarnation}/lane0"}
    )
    await frozen.execute("BEGIN; SELECT FROM shard WHERE shard_id = 0 FOR SHARE")
    await store.set_dead(store.incarnation)
    async with asyncio.timeout(4):
        assert await taken_by(rival) == terms[0] + 1
    with pytest.raises(CALL_ERRORS):
        await frozen.execute("COMMIT")
    await frozen.close(timeout=1)


async def test_a_living_owner_s_session_is_not_ended_by_a_taker(
    dsn: str, store: Store, rival: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int]
) -> None:
    async with store.fenced(0, terms[0]) as connection, asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(taken_by(rival))
        await until_waiting_for_a_lock(admin)
        waiting = await admin.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        assert await rival.end_blocking_backends(waiting, rival.incarnation) == []
        assert await connection.fetchval("SELECT 1") == 1
        taking.cancel()


async def test_a_bump_ends_the_session_that_its_own_process_has_lost(
    dsn: str, store: Store, terms: dict[int, int]
) -> None:
    lost = await asyncpg.connect(
        dsn, server_settings={"application_name": f"odin-engine/{store.incarnation}/lane0"}
    )
    await lost.execute("BEGIN; SELECT FROM shard WHERE shard_id = 0 FOR SHARE")
    async with asyncio.timeout(4):
        assert await store.bump(store.incarnation, {0: terms[0]}) == {0: terms[0] + 1}
    lost.terminate()


async def test_a_view_holds_every_node_and_shard(store: Store, rival: Store) -> None:
    await taken_by(store)
    view = await store.cluster_view()
    assert {(node.node_id, node.address) for node in view.nodes} == {
        ("node-a", "a:1"),
        ("node-b", "b:1"),
    }
    assert all(view.db_now_us < node.lease_until_us for node in view.nodes)
    assert [shard.shard_id for shard in view.shards] == list(range(SHARDS))
    assert view.shards[0].owner == store.incarnation
