"""Answers: none leaves before what it depends on has committed, nor without a lease in hand."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.outbox import Outbox
from engine.run import HOLD_ROUNDS
from odin.core.requests import Accepted, Started, WaitWorkflow
from odin.errors import NotFoundError, NotOwnerError, OdinError, OutcomeUnknownError

from .scene import Held, Scene, id_on, lost, scene, signal, start, turns

ID = id_on(0)


async def held_start(place: Scene) -> tuple[Held, "asyncio.Task[object]"]:
    """Begin a start whose group is on its way and will be lost."""
    place.store.before_commit = held = Held(lost())
    task = place.ask(start(ID, "r-first"))
    async with asyncio.timeout(5):
        await held.arrived.wait()
    return held, task


async def test_no_answer_leaves_before_its_group_has_committed(dsn: str) -> None:
    async with scene(dsn) as place:
        held, task = await held_start(place)
        await turns()
        assert not task.done()
        held.go.set()
        with pytest.raises(OutcomeUnknownError):
            await task


async def test_a_repeat_of_what_is_on_its_way_is_answered_after_it(dsn: str) -> None:
    async with scene(dsn) as place:
        held, _ = await held_start(place)
        repeat = place.ask(start(ID, "r-first"))
        await turns()
        assert not repeat.done()
        held.go.set()
        with pytest.raises(OutcomeUnknownError):
            await repeat


async def test_a_refusal_because_of_what_is_on_its_way_is_answered_after_it(dsn: str) -> None:
    """The first start is lost: the second one must not be told that it exists."""
    async with scene(dsn) as place:
        held, _ = await held_start(place)
        second = place.ask(start(ID, "r-second"))
        await place.decided("r-second")
        assert not second.done()
        held.go.set()
        with pytest.raises(OutcomeUnknownError):
            await second


async def test_nothing_is_told_of_a_run_that_is_on_its_way(dsn: str) -> None:
    async with scene(dsn) as place:
        held, _ = await held_start(place)
        wait = WaitWorkflow(workflow_id=ID, wait_ms=1)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_error_of(place, wait))
            told: list[OdinError | None] = []
            place.shards.terms[0].then(told.append)
            other = await _raced(asking)
            held.go.set()
        assert other is None, "it was answered while the group was on its way"
        assert isinstance(asking.result(), OdinError)
        assert [type(one) for one in told] == [type(asking.result())]


async def _error_of(place: Scene, wait: WaitWorkflow) -> OdinError | None:
    try:
        await place.handler.ask(wait)
    except OdinError as error:
        return error
    return None


async def _raced(asking: "asyncio.Task[OdinError | None]") -> object:
    """Return what was answered within the wait that was asked for and much more."""
    done, _ = await asyncio.wait({asking}, timeout=0.1)
    return [task.result() for task in done] or None


async def test_memory_is_told_of_only_under_a_lease(dsn: str) -> None:
    """Whoever may have lost its shards without knowing repeats and refuses nothing."""
    async with scene(dsn) as place:
        assert isinstance(await place.handler.ask(start(ID, "r-first")), Started)
        place.lease.serves = False
        for request in (
            start(ID, "r-first"),
            start(ID, "r-second"),
            signal(id_on(1, "nobody"), "r-third"),
            WaitWorkflow(workflow_id=ID, wait_ms=1),
        ):
            with pytest.raises(NotOwnerError):
                await place.handler.ask(request)
        place.lease.serves = True
        with pytest.raises(NotFoundError):
            await place.handler.ask(signal(id_on(1, "nobody"), "r-third"))


async def test_what_was_acknowledged_is_known_to_the_next_term(dsn: str) -> None:
    async with scene(dsn) as place:
        began = await place.handler.ask(start(ID, "r-first"))
        assert isinstance(began, Started)
        signalled = await place.handler.ask(signal(ID, "r-signal"))
        assert isinstance(signalled, Accepted)
        [term] = (await place.store.bump(place.store.incarnation, {0: 1})).values()
        place.shards.begin(0, term)
        again = await place.handler.ask(start(ID, "r-first"))
        assert isinstance(again, Started)
        assert (again.run_id, again.replayed) == (began.run_id, True)
        repeated = await place.handler.ask(signal(ID, "r-signal"))
        assert isinstance(repeated, Accepted)
        assert (repeated.event_id, repeated.replayed) == (signalled.event_id, True)


async def test_messages_are_held_back_from_the_third_round_of_a_closing_report_on(
    dsn: str,
) -> None:
    async with scene(dsn) as place:
        began = await place.handler.ask(start(ID, "r-first"))
        assert isinstance(began, Started)
        run = place.shards.terms[0].runs[began.run_id]
        run.rounds, run.hold_until_us = HOLD_ROUNDS, 2**62
        held = place.ask(signal(ID, "r-signal"))
        await turns()
        await place.handler.ask(start(id_on(0, "later"), "r-later"))
        assert not held.done(), "a later request has been answered, this one came first"
        run.rounds = 0
        assert isinstance(await held, Accepted)


async def test_a_confirm_of_an_older_term_deletes_no_row(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    async with scene(dsn) as place:
        outbox = Outbox(place.shards, place.store, dict)
        await place.handler.ask(start(ID, "r-first"))
        [(shard_id, range_id, outbox_id)] = place.effects.written
        [term] = (await place.store.bump(place.store.incarnation, {shard_id: range_id})).values()
        place.shards.begin(shard_id, term)
        outbox.confirmed(shard_id, range_id, [outbox_id])
        await place.handler.ask(signal(ID, "r-signal"))  # carries along what has gathered
        assert await admin.fetchval("SELECT array_agg(id) FROM outbox") == [outbox_id]
        outbox.confirmed(shard_id, term, [outbox_id])
        await place.handler.ask(signal(ID, "r-signal-2"))
        assert await admin.fetchval("SELECT count(*) FROM outbox") == 0


async def test_in_the_first_seconds_of_a_term_no_started_attempt_is_judged(dsn: str) -> None:
    """The workers' inventories are still on their way: healthy work must not be taken for lost."""
    async with scene(dsn) as place:
        began = await place.handler.ask(start(ID, "r-first"))
        assert isinstance(began, Started)
        term = place.shards.terms[0]
        liveness = term.liveness(term.runs[began.run_id])
        assert liveness.grace_until_us == term.began_us + 5_000_000
        assert liveness.term_began_us == term.began_us
