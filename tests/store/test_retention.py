"""What goes with age, and what does not."""

from typing import Any

import asyncpg

from engine.store import RequestWrite, Store
from engine.store.retention import Deleted

from .support import event, run, starting

DAY_US = 86_400_000_000
CLOSED_US = 4_000_000_000_000_000
"""Far ahead of the database's clock: what is given an end by it has not come to it yet."""


async def closed(
    store: Store,
    terms: dict[int, int],
    workflow_id: str,
    closed_us: int,
    *,
    requested: bool = True,
    shard_id: int = 0,
) -> str:
    """Write a closed run with two events and the request that started it; return its id."""
    execution = run(shard_id, workflow_id=workflow_id, status="completed", closed_us=closed_us)
    execution.workflow_task.state = "none"
    group = starting(store.incarnation, terms, execution)
    group.events.append(event(execution, 2))
    execution.next_event_id = 3
    if requested:
        group.requests.append(
            RequestWrite(
                shard_id, "default", workflow_id, "r-1", "start", execution.run_id, 1, b"hash"
            )
        )
    await store.commit(group)
    return execution.run_id


async def deleted(store: Store, terms: dict[int, int], *, before_us: int, limit: int) -> list[str]:
    """Delete, and return the ids of the runs that went."""
    gone = await store.delete_closed(terms, before_us=before_us, limit=limit)
    assert gone.refused == frozenset()
    return [run_id for _, run_id in gone.runs]


async def counts(admin: "asyncpg.Connection[Any]") -> tuple[int, int, int]:
    """Return how many executions, events and requests there are."""
    row = await admin.fetchrow(
        "SELECT (SELECT count(*) FROM execution), (SELECT count(*) FROM event),"
        " (SELECT count(*) FROM request)"
    )
    assert row is not None
    return row[0], row[1], row[2]


async def test_old_closed_runs_go_with_their_events_and_newer_ones_stay(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    old = await closed(store, terms, "old", CLOSED_US)
    await closed(store, terms, "new", CLOSED_US + DAY_US)

    gone = await deleted(store, terms, before_us=CLOSED_US + 1, limit=10)

    assert gone == [old]
    assert await counts(admin) == (1, 2, 2)


async def test_an_open_run_stays_however_old_it_is(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    await store.commit(starting(store.incarnation, terms, run()))

    assert await deleted(store, terms, before_us=2**52, limit=10) == []
    assert (await counts(admin))[0] == 1


async def test_a_request_outlives_its_run_by_a_day_after_the_closing(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    await closed(store, terms, "old", CLOSED_US)
    await deleted(store, terms, before_us=CLOSED_US + 1, limit=10)

    kept = await store.load_request(0, "default", "old", "r-1")
    expires_us = await admin.fetchval("SELECT to_us(expires_at) FROM request")
    await admin.execute("UPDATE request SET expires_at = clock_timestamp() - interval '1 second'")
    await deleted(store, terms, before_us=0, limit=10)

    assert kept is not None
    assert expires_us == CLOSED_US + DAY_US
    assert await store.load_request(0, "default", "old", "r-1") is None


async def test_a_request_of_a_chain_that_goes_on_is_given_no_end(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    await closed(store, terms, "chain", CLOSED_US)
    await store.commit(starting(store.incarnation, terms, run(workflow_id="chain")))

    assert len(await deleted(store, terms, before_us=CLOSED_US + 1, limit=10)) == 1
    assert await admin.fetchval("SELECT expires_at FROM request") is None


async def test_an_owner_whose_term_is_over_deletes_nothing(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    await closed(store, terms, "old", CLOSED_US)
    await admin.execute("UPDATE shard SET range_id = range_id + 1")

    gone = await store.delete_closed(terms, before_us=CLOSED_US + 1, limit=10)

    assert gone == Deleted(frozenset(terms), ())
    assert await counts(admin) == (1, 2, 1)


async def test_a_batch_is_no_larger_than_asked_for(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    for number in range(5):
        await closed(store, terms, f"old-{number}", CLOSED_US + number, requested=False)

    assert len(await deleted(store, terms, before_us=2**52, limit=2)) == 2
    assert (await counts(admin))[0] == 3


async def test_no_run_goes_while_a_message_of_its_shard_to_another_run_is_on_its_way(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    """The one it is for would wait for ever."""
    run_id = await closed(store, terms, "old", CLOSED_US)
    await admin.execute(
        "INSERT INTO outbox (shard_id, destination, body) VALUES (0, 'shard:3', 'closed')"
    )
    assert await deleted(store, terms, before_us=CLOSED_US + 1, limit=10) == []
    await admin.execute("DELETE FROM outbox")
    assert await deleted(store, terms, before_us=CLOSED_US + 1, limit=10) == [run_id]


async def test_a_lost_shard_keeps_its_runs_and_costs_the_others_nothing(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    lost, held = sorted(terms)[:2]
    await closed(store, terms, "lost", CLOSED_US, shard_id=lost)
    gone = await closed(store, terms, "held", CLOSED_US + 1, shard_id=held)
    await admin.execute("UPDATE shard SET range_id = range_id + 1 WHERE shard_id = $1", lost)

    deleted = await store.delete_closed(terms, before_us=2**52, limit=10)

    assert deleted == Deleted(frozenset({lost}), ((held, gone),))
    assert await admin.fetchval("SELECT array_agg(workflow_id) FROM execution") == ["lost"]


async def test_the_runs_of_all_shards_go_in_the_order_of_their_closing(
    store: Store, terms: dict[int, int]
) -> None:
    first, second = sorted(terms)[:2]
    later = await closed(store, terms, "later", CLOSED_US + 2, shard_id=first)
    sooner = await closed(store, terms, "sooner", CLOSED_US + 1, shard_id=second)

    assert await deleted(store, terms, before_us=2**52, limit=1) == [sooner]
    assert await deleted(store, terms, before_us=2**52, limit=1) == [later]


async def test_a_batch_is_one_call_to_the_database(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]"
) -> None:
    """It occupies the lane: a round trip a statement and shard would hold up every commit."""
    for shard_id in terms:
        await closed(store, terms, f"old-{shard_id}", CLOSED_US, shard_id=shard_id)
    before = await admin.fetchval("SELECT pg_current_xact_id()::text::bigint")

    assert len(await deleted(store, terms, before_us=2**52, limit=100)) == len(terms)

    after = await admin.fetchval("SELECT pg_current_xact_id()::text::bigint")
    assert after == before + 2, "one transaction for all shards"
