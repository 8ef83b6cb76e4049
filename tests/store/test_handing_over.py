"""Taking, renewing and giving up on a real store: what a node may do before, between and after."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.membership import Membership
from engine.ownership import Ownership
from engine.shards import Shards
from odin.errors import OdinError
from odin.runtime.clock import SystemClock
from tests.broker.support import ManualClock

from .scene import HookedStore, hooked_store, lost, writer
from .support import SHARDS, until_waiting_for_a_lock

SECONDS = 10


def member_of(store: HookedStore, clock: SystemClock | ManualClock) -> Membership:
    """The membership of a node whose row is there, before its first renewal."""
    return Membership(store, clock, incarnation=store.incarnation, node_id="node-a", address="a:1")


async def renew_once(member: Membership) -> None:
    """Renew the lease, and return once the reply is in."""
    before, stop = member.lease, asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(member.run(stop))
        async with asyncio.timeout(SECONDS):
            while member.lease is before:
                await asyncio.sleep(0.002)
        stop.set()


async def owner_of_all(store: HookedStore) -> tuple[Shards, Ownership]:
    """A node that has a term of every shard and scans no more."""
    _, _, shards, _, _ = writer(store)
    member = member_of(store, SystemClock())
    await renew_once(member)
    ownership, stop = Ownership(store, member, shards, SystemClock()), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(ownership.run(stop))
        async with asyncio.timeout(SECONDS):
            while len(shards.terms) < SHARDS:
                await asyncio.sleep(0.005)
        stop.set()
    return shards, ownership


async def test_no_term_begins_before_its_acquisition_has_committed(dsn: str) -> None:
    async with hooked_store(dsn) as store:
        seen: list[object] = []
        shards: list[Shards] = []

        def look(shard_id: int) -> None:
            seen.extend(shard_id in one.terms for one in shards)

        store.before_acquire = store.after_acquire = look
        _, _, registry, _, _ = writer(store)
        shards.append(registry)
        member, stop = member_of(store, SystemClock()), asyncio.Event()
        await renew_once(member)
        async with asyncio.TaskGroup() as group:
            group.create_task(Ownership(store, member, registry, SystemClock()).run(stop))
            async with asyncio.timeout(SECONDS):
                while len(registry.terms) < SHARDS:
                    await asyncio.sleep(0.005)
            stop.set()
        assert seen == [False] * (2 * SHARDS)


async def test_a_shard_answers_nothing_from_the_moment_its_release_is_sent(dsn: str) -> None:
    async with hooked_store(dsn) as store:
        shards, ownership = await owner_of_all(store)
        still: list[int] = []
        store.before_release = lambda shard_id: still.extend({shard_id} & shards.terms.keys())
        await ownership.drain()
        assert still == []
        owners = {shard.owner for shard in (await store.cluster_view()).shards}
        assert owners == {None}, "all were released"


async def test_a_release_in_doubt_is_bumped_so_that_a_late_copy_does_nothing(dsn: str) -> None:
    async with hooked_store(dsn) as store:
        shards, ownership = await owner_of_all(store)
        ranges = {shard_id: term.range_id for shard_id, term in shards.terms.items()}

        def break_off(shard_id: int) -> None:
            if shard_id == 0:
                raise lost()

        store.before_release = break_off
        await ownership.drain()
        store.before_release = None
        assert not await store.release(0, store.incarnation, ranges[0], heir=None)
        [shard, *_] = (await store.cluster_view()).shards
        assert (shard.owner, shard.range_id) == (store.incarnation, ranges[0] + 1)


async def test_a_lease_is_counted_from_the_send_of_its_renewal_however_late_the_reply(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    async with hooked_store(dsn) as store:
        clock = ManualClock()
        member = member_of(store, clock)
        holding = admin.transaction()
        await holding.start()
        await admin.execute("SELECT FROM node FOR UPDATE")
        async with asyncio.TaskGroup() as group:
            group.create_task(renew_once(member))
            await until_waiting_for_a_lock(admin)
            await clock.advance(0.75)  # the reply comes this much after the request
            await holding.rollback()
        assert member.lease.serving_until == pytest.approx(8.0)
        assert member.renewal_seconds == pytest.approx(0.75)


async def test_a_node_trusts_its_lease_for_eight_seconds_of_its_own_clock(dsn: str) -> None:
    async with hooked_store(dsn) as store:
        clock = ManualClock()
        member = member_of(store, clock)
        await renew_once(member)
        assert member.may_serve()
        await clock.advance(7.9)
        assert member.may_serve()
        await clock.advance(0.2)
        assert not member.may_serve(), "Postgres may still call it alive for two seconds"


async def test_a_node_that_was_marked_dead_serves_no_more_though_its_own_clock_would_let_it(
    dsn: str,
) -> None:
    async with hooked_store(dsn) as store:
        member, stop = member_of(store, SystemClock()), asyncio.Event()
        await renew_once(member)
        assert await store.set_dead(store.incarnation)
        async with asyncio.TaskGroup() as group:
            group.create_task(member.run(stop))
            async with asyncio.timeout(SECONDS):
                await member.expired.wait()
            assert not member.may_serve()
            stop.set()


async def test_a_node_that_stops_takes_nothing_more(dsn: str) -> None:
    async with hooked_store(dsn) as store:
        shards, ownership = await owner_of_all(store)
        await ownership.drain()
        with pytest.raises(OdinError):
            shards.serving(0)
        assert await store.acquire(0, store.incarnation, holds_term=False) is None
