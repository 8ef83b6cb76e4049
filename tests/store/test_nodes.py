"""Leases: who lives, by the database's clock."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import NodeIdTaken, Renewed, Store
from odin.core.ownership import NodeState

from .support import IDS, until_waiting_for_a_lock

SECOND_US = 1_000_000


async def set_lease(admin: "asyncpg.Connection[Any]", incarnation: str, ahead: str) -> None:
    await admin.execute(
        "UPDATE node SET lease_until = clock_timestamp() + $2::text::interval"
        " WHERE incarnation = $1",
        incarnation,
        ahead,
    )


async def state_of(store: Store, incarnation: str) -> NodeState | None:
    nodes = {node.incarnation: node.state for node in (await store.cluster_view()).nodes}
    return nodes.get(incarnation)


async def test_a_renewal_brings_back_the_database_s_time_and_a_whole_lease(store: Store) -> None:
    renewed = await store.renew(store.incarnation)
    assert renewed is not None
    assert 0 <= renewed.db_now_us - renewed.lease_until_us + 10 * SECOND_US < SECOND_US


async def test_a_draining_node_renews_like_a_living_one(store: Store) -> None:
    assert await store.set_draining(store.incarnation)
    assert await store.renew(store.incarnation) is not None
    assert await state_of(store, store.incarnation) is NodeState.DRAINING


async def test_an_expired_lease_is_not_renewed_though_nobody_has_noticed(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await set_lease(admin, store.incarnation, "-1 microsecond")
    assert await store.renew(store.incarnation) is None


async def test_a_dead_node_is_not_renewed_though_its_lease_runs(store: Store) -> None:
    assert await store.set_dead(store.incarnation)
    assert await store.renew(store.incarnation) is None
    assert not await store.set_dead(store.incarnation)
    assert not await store.set_draining(store.incarnation)


@pytest.mark.parametrize(
    ("ahead", "is_over"),
    [("-1 second", True), ("2 seconds", False), ("19 seconds", False), ("21 seconds", True)],
)
async def test_what_may_be_marked_dead_is_exactly_what_may_not_be_renewed(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]", ahead: str, *, is_over: bool
) -> None:
    await set_lease(admin, store.incarnation, ahead)
    marked = await rival.mark_dead_expired()
    assert marked == ([store.incarnation] if is_over else [])
    await set_lease(admin, rival.incarnation, ahead)
    assert (await rival.renew(rival.incarnation) is None) is is_over


async def test_a_draining_node_that_expires_is_marked_dead(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await store.set_draining(store.incarnation)
    await set_lease(admin, store.incarnation, "-1 second")
    assert await rival.mark_dead_expired() == [store.incarnation]
    assert await rival.mark_dead_expired() == []


async def test_a_renewal_that_waited_is_judged_by_what_became_of_the_row(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    marking = admin.transaction()
    await marking.start()
    await admin.execute("UPDATE node SET state = 'dead' WHERE incarnation = $1", store.incarnation)
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(store.renew(store.incarnation))
        await until_waiting_for_a_lock(admin)
        await marking.commit()
    assert renewing.result() is None


async def test_a_row_that_is_being_renewed_is_left_to_the_next_look(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await set_lease(admin, store.incarnation, "-1 second")
    renewing = admin.transaction()
    await renewing.start()
    await admin.execute("SELECT FROM node WHERE incarnation = $1 FOR UPDATE", store.incarnation)
    assert await rival.mark_dead_expired() == []
    await renewing.rollback()
    assert await rival.mark_dead_expired() == [store.incarnation]


async def test_a_node_id_belongs_to_one_process_that_is_not_dead(
    store: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    second = IDS.incarnation()
    taken = await store.register_node(second, "node-a", "a:2")
    assert isinstance(taken, NodeIdTaken)
    assert taken.incarnation == store.incarnation
    await store.renew(store.incarnation)
    again = await store.register_node(second, "node-a", "a:2")
    assert isinstance(again, NodeIdTaken)
    assert again.lease_until_us > taken.lease_until_us, "it lives: the second one must not start"
    await set_lease(admin, store.incarnation, "-1 second")
    assert isinstance(await store.register_node(second, "node-a", "a:2"), NodeIdTaken)
    await store.mark_dead_expired()
    assert isinstance(await store.register_node(second, "node-a", "a:2"), Renewed)


async def test_a_node_is_forgotten_only_when_no_shard_names_it(
    store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    await store.acquire(0, store.incarnation, holds_term=False)
    await store.set_dead(store.incarnation)
    await set_lease(admin, store.incarnation, "-1 hour")
    assert await rival.forget_nodes(after_us=SECOND_US) == []
    range_id = await rival.acquire(0, rival.incarnation, holds_term=False)
    assert range_id is not None
    await rival.release(0, rival.incarnation, range_id, heir=store.incarnation)
    assert await rival.forget_nodes(after_us=SECOND_US) == []
    await rival.acquire(0, rival.incarnation, holds_term=False)
    assert await rival.forget_nodes(after_us=7200 * SECOND_US) == []
    assert await rival.forget_nodes(after_us=SECOND_US) == [store.incarnation]
    assert await state_of(rival, rival.incarnation) is NodeState.ALIVE
