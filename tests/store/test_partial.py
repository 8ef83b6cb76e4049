"""A group of which some shards are lost: all of it that is theirs stays out, of every kind."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import asyncpg
import pytest

from engine.node import _evict_idle
from engine.store import Group, OutboxDelay, OutboxInsert, RequestWrite, Store
from engine.term import Term
from odin.core.execution import Execution
from odin.errors import OdinError
from tests.broker.support import until
from tests.engine.bed import running_bed
from tests.engine.flows import one_step

from .scene import Held, HookedStore, id_on, turns
from .support import NOW_US, SHARDS, event, run, starting

KINDS = ("execution", "event", "request", "outbox")


def everything(terms: dict[int, int], old: dict[int, Execution], ids: dict[int, int]) -> Group:
    """A group with a row of every kind for each of the shards."""
    group = Group("", terms=dict(terms))
    for shard_id, before in old.items():
        before.next_event_id = 3
        new = run(shard_id, f"new-{shard_id}")
        group.updates[before.run_id] = before
        group.inserts[new.run_id] = new
        group.events += [event(before, 2), event(new, 1)]
        group.outbox.append(OutboxInsert(shard_id, "w:default", b"new"))
        group.outbox_deletes.append((shard_id, ids[shard_id]))
        group.outbox_delays.append(OutboxDelay(shard_id, ids[shard_id] + 1, 7, NOW_US))
        group.requests.append(
            RequestWrite(shard_id, "default", "w", f"r-{shard_id}", "start", new.run_id, 1, b"h")
        )
    return group


async def contents(admin: "asyncpg.Connection[Any]", shard_id: int) -> list[list[dict[str, Any]]]:
    """Every row of a shard, of every kind."""
    found: list[list[dict[str, Any]]] = []
    for table in KINDS:
        query = f"SELECT to_jsonb(t) AS r FROM {table} AS t WHERE shard_id = $1 ORDER BY 1"
        found.append([json.loads(row["r"]) for row in await admin.fetch(query, shard_id)])
    return found


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_of_a_lost_shard_nothing_is_written_and_of_the_others_everything(
    store: Store, admin: "asyncpg.Connection[Any]", terms: dict[int, int], lost: int
) -> None:
    shards = (1, 2, 3)
    old = {shard_id: run(shard_id, f"old-{shard_id}") for shard_id in shards}
    first = starting(store.incarnation, terms, *old.values())
    first.outbox += [
        OutboxInsert(shard_id, "w:default", b"%d" % n) for shard_id in shards for n in (0, 1)
    ]
    outbox_ids = (await store.commit(first)).outbox_ids
    ids = dict(zip(shards, outbox_ids[::2], strict=True))
    await store.bump(store.incarnation, {lost: terms[lost]})
    before = {shard_id: await contents(admin, shard_id) for shard_id in shards}
    group = everything({one: terms[one] for one in shards}, old, ids)
    group.incarnation = store.incarnation

    assert (await store.commit(group)).refused == {lost}

    assert await contents(admin, lost) == before[lost]
    for shard_id in {*shards} - {lost}:
        executions, events, requests, outbox = await contents(admin, shard_id)
        assert [len(executions), len(events), len(requests)] == [2, 3, 1]
        assert sorted(row["publish_count"] for row in outbox) == [0, 7]


async def test_ids_of_outbox_rows_are_never_used_again(store: Store, terms: dict[int, int]) -> None:
    """A confirm of an older term may come late: it must not delete another task's row."""
    seen: list[int] = []
    for _ in range(3):
        row = OutboxInsert(0, "w:default", b"task")
        group = Group(store.incarnation, {0: terms[0]}, outbox=[row])
        group.outbox_deletes = [(0, outbox_id) for outbox_id in seen]
        await store.commit(group)
        [stored] = await store.outbox_all(0)
        await store.commit(
            Group(store.incarnation, {0: terms[0]}, outbox_deletes=[(0, stored.outbox_id)])
        )
        seen.append(stored.outbox_id)
    assert len(set(seen)) == len(seen)


async def test_no_run_leaves_memory_before_its_group_has_committed(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted and looked for again, it would not be there, and would be started once more."""
    evicted = Counter[str]()
    monkeypatch.setattr("engine.node.EVICT_EVERY_SECONDS", 0.01)
    monkeypatch.setattr("engine.node.IDLE_SECONDS", -1.0)
    monkeypatch.setattr("engine.node._evict_idle", counting(_evict_idle, evicted))
    held, started = Held(), list[str]()

    class Holding(HookedStore):
        asked: ClassVar[list[str]] = []

        def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - a store's
            super().__init__(*arguments, **options)
            self.before_commit = self.hold
            self.looked_up = self.asked

        async def hold(self, group: Group) -> None:
            names = [one.workflow_id for one in group.inserts.values()]
            started.extend(names)
            if names:
                await held(group)

    async with running_bed(dsn, store_type=Holding) as bed, asyncio.TaskGroup() as group:
        first = group.create_task(bed.client.start_workflow(one_step, "x", id=id_on(0)))
        await held.arrived.wait()
        await rounds(evicted, 2)
        second = group.create_task(
            refusal(bed.client.start_workflow(one_step, "x", id=id_on(0), request_id="r-second"))
        )
        await until(lambda: "r-second" in Holding.asked)
        await turns()
        held.go.set()
        assert (await first).id == id_on(0)
        assert await second == "ALREADY_STARTED"
        assert started == [id_on(0)]


def counting(evict: Callable[[Term, float], None], evicted: Counter[str]) -> object:
    """Evict as ever, and count how often."""

    def counted(term: Term, now: float) -> None:
        evicted["terms"] += 1
        evict(term, now)

    return counted


async def rounds(evicted: Counter[str], count: int) -> None:
    """Return once every shard has been looked through for idle runs that many times more."""
    enough = evicted["terms"] + (count + 1) * SHARDS
    await until(lambda: evicted["terms"] >= enough)


async def refusal(call: Awaitable[object]) -> str:
    """The reason that a call is refused for."""
    with pytest.raises(OdinError) as caught:
        await call
    return caught.value.reason
