"""A forwarded request follows its shard: nobody waits for an owner that is the owner no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from engine.handler import Handler
from engine.peers import Peers
from engine.router import Router
from engine.shards import Shards
from odin.core.requests import Accepted, ClientRequest, TerminateWorkflow
from odin.core.wire import ShardEntry
from odin.errors import (
    NotOwnerError,
    OutcomeUnknownError,
    ShardMovingError,
    StoreUnavailableError,
)
from odin.runtime.clock import SystemClock
from odin.runtime.links import LinkClosedError

REQUEST = TerminateWorkflow(namespace="default", workflow_id="w", request_id="r", reason="")
ANSWER = Accepted(run_id="run", event_id=3, replayed=False)


class World:
    """The map as one engine knows it, and what the other engines say when they are asked."""

    def __init__(self, answers: dict[str, Callable[[], Awaitable[Accepted]]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.on_map: list[Callable[[Iterable[ShardEntry]], None]] = []
        self.terms: dict[int, object] = {}
        self.owner = ShardEntry(7, "old", 1)
        self.refusal: StoreUnavailableError | None = None
        self.is_linked = True
        self.is_cut_off = False
        self.router = Router(
            cast("Shards", self),
            cast("Handler", None),
            cast(
                "Peers",
                SimpleNamespace(
                    has_link=lambda _: self.is_linked,
                    is_cut_off=lambda _: self.is_cut_off,
                    forward=self._forward,
                ),
            ),
            SystemClock(),
            lambda incarnation: f"http://{incarnation}",
            lambda: self.refusal,
        )

    def shard_of(self, _namespace: str, _workflow_id: str) -> int:
        return 7

    def entry(self, _shard_id: int) -> ShardEntry:
        return self.owner

    def move(self, incarnation: str, range_id: int) -> None:
        self.owner = ShardEntry(7, incarnation, range_id)
        for told in self.on_map:
            told([self.owner])

    async def _forward(
        self, address: str, _shard_id: int, _request: ClientRequest, _patience: float
    ) -> Accepted:
        self.asked.append(address)
        return await self.answers[address.removeprefix("http://")]()


async def never() -> Accepted:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def at_once() -> Accepted:
    return ANSWER


async def test_a_request_to_an_owner_that_never_answers_goes_to_the_next_one_when_it_moves() -> (
    None
):
    world = World({"old": never, "new": at_once})
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        asking = group.create_task(world.router.ask(REQUEST, 60_000))
        while not world.asked:
            await asyncio.sleep(0)
        world.move("", 2)  # released: nobody to ask yet, and the old owner may still answer
        world.move("old", 3)  # bumped: the same owner
        await asyncio.sleep(0.05)
        assert not asking.done()
        world.move("new", 4)
    assert asking.result() == ANSWER
    assert world.asked == ["http://old", "http://new"]


async def test_a_router_whose_engine_is_over_answers_what_is_asked_at_once() -> None:
    world = World({"old": never})
    world.router.close()
    async with asyncio.timeout(5):
        with pytest.raises(Exception, match="no owner that answers"):
            await world.router.ask(REQUEST, 60_000)
    assert world.asked == []


async def test_a_move_to_nobody_leaves_the_outcome_unknown_when_the_time_is_up() -> None:
    world = World({"old": never, "new": never})

    async def move() -> None:
        while not world.asked:
            await asyncio.sleep(0)
        world.move("new", 2)
        while len(world.asked) < 2:
            await asyncio.sleep(0.01)
        world.router.close()
        world.move("newer", 3)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(move())
        with pytest.raises(OutcomeUnknownError):
            await world.router.ask(REQUEST, 60_000)


async def not_here() -> Accepted:
    raise NotOwnerError("not served here")


async def test_a_shard_without_an_owner_is_waited_for_and_while_the_database_fails_is_not() -> None:
    world = World({"old": not_here})
    async with asyncio.timeout(8), asyncio.TaskGroup() as group:
        asking = group.create_task(_refusal_of(world))
        while len(world.asked) < 20:  # two seconds of asking
            await asyncio.sleep(0.05)
        assert not asking.done()
        world.refusal = StoreUnavailableError("nobody answers at the database")
    assert asking.result() is world.refusal


async def test_who_waited_for_an_owner_in_vain_need_not_rest_before_asking_on() -> None:
    """It waits here again; resting, it would miss a shard that is back for that much longer."""
    world = World({"old": not_here})
    with pytest.raises(ShardMovingError) as refused:
        await world.router.ask(REQUEST, 300)
    assert len(world.asked) >= 2
    assert refused.value.retry_after is not None
    assert refused.value.retry_after <= 0.2


async def _refusal_of(world: World) -> Exception:
    with pytest.raises(StoreUnavailableError) as refused:
        await world.router.ask(REQUEST, 60_000)
    return refused.value


async def test_a_database_that_fails_after_a_copy_of_unknown_fate_leaves_it_unknown() -> None:
    async def cut() -> Accepted:
        world.answers["old"] = fails
        raise LinkClosedError("the link has ended")

    async def fails() -> Accepted:
        raise StoreUnavailableError("the database takes nothing")

    world = World({"old": cut})
    async with asyncio.timeout(5):
        with pytest.raises(OutcomeUnknownError, match="the database takes nothing"):
            await world.router.ask(REQUEST, 60_000)
    assert len(world.asked) == 2


async def test_a_caller_of_an_owner_that_fell_silent_is_sent_to_it_and_nothing_is_unknown() -> None:
    world = World({})
    world.is_linked, world.is_cut_off = False, True
    async with asyncio.timeout(5):
        with pytest.raises(ShardMovingError) as refused:
            await world.router.ask(REQUEST, 60_000)
    assert refused.value.details == {"owner": "http://old"}
    assert world.asked == []


async def test_a_caller_whose_request_was_sent_into_the_silence_learns_that_it_may_be_there() -> (
    None
):
    async def falls_silent() -> Accepted:
        world.is_linked, world.is_cut_off = False, True
        raise LinkClosedError("the link has ended")

    world = World({"old": falls_silent})
    async with asyncio.timeout(5):
        with pytest.raises(OutcomeUnknownError) as refused:
            await world.router.ask(REQUEST, 60_000)
    assert refused.value.details == {"owner": "http://old"}


async def test_a_request_waits_on_for_an_owner_whose_links_have_ended() -> None:
    """Its process is gone: nobody can hear it, and the next owner will be told of."""
    world = World({"new": at_once})
    world.is_linked = False
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        asking = group.create_task(world.router.ask(REQUEST, 60_000))
        await asyncio.sleep(1.0)
        assert not asking.done()
        world.is_linked = True
        world.move("new", 2)
    assert asking.result() == ANSWER
