"""The simulated database waits, breaks and commits late the way a real one may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.store import EventWrite, Group, Renewed, Store, WriteRaisedError
from engine.store.connections import PoolSizes
from odin.core.events import HistoryEvent
from odin.errors import OutcomeUnknownError, UnavailableError

from .loop import Process, SimLoop
from .store import Call, Fault, SimDatabase

EVENT = EventWrite(0, "00000000-0000-7000-8000-000000000001", HistoryEvent(1, "noted", 1, b""))


class Scene:
    """Two nodes that live; the first owns the only shard in range 1."""

    def __init__(self) -> None:
        self.loop = SimLoop(3)
        self.database = SimDatabase(self.loop)
        self.faults: dict[str, Fault] = {}
        self.database.plan = self._plan
        self.stores: list[Store] = []

    def _plan(self, call: Call) -> Fault | None:
        return self.faults.pop(call.name, None)

    async def open(self) -> None:
        for name in ("one", "two"):
            store = self.database.store_type(name)("sim", name, sizes=PoolSizes())
            await store.open()
            await store.open_cluster(1, "sharded")
            assert isinstance(await store.register_node(name, f"node-{name}", ""), Renewed)
            self.stores.append(store)
        assert await self.stores[0].acquire(0, "one", holds_term=False) == 1

    @property
    def events(self) -> int:
        return len(self.database.tables.events)

    async def commit(self, who: int = 0, range_id: int = 1) -> frozenset[int]:
        name = ("one", "two")[who]
        group = Group(name, terms={0: range_id}, events=[EVENT])
        return (await self.stores[who].commit(group)).refused


def play(main: Callable[[Scene], Awaitable[None]]) -> None:
    """Play a scene on virtual time."""
    scene = Scene()

    async def run() -> None:
        await scene.open()
        await main(scene)

    scene.loop.run_until(run())
    scene.loop.close()


def test_nothing_is_seen_before_its_commit_and_all_of_it_after() -> None:
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = Fault.STALLED
        async with asyncio.TaskGroup() as group:
            group.create_task(_unknown_or_done(scene))
            await asyncio.sleep(0.5)
            assert scene.events == 0
            assert await scene.stores[1].events(0, EVENT.run_id) == []
        await asyncio.sleep(30.0)
        assert scene.events == 1

    play(main)


async def _unknown_or_done(scene: Scene) -> None:
    try:
        await scene.commit()
    except OutcomeUnknownError:
        return


def test_a_bump_waits_for_the_group_in_flight_and_refuses_the_late_one() -> None:
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = Fault.LATE
        with pytest.raises(OutcomeUnknownError):
            await scene.commit()
        assert await scene.stores[0].bump("one", {0: 1}) == {0: 2}
        await asyncio.sleep(30.0)
        assert scene.events == 0  # it has arrived, and found another range
        assert await scene.commit(range_id=2) == frozenset()
        assert scene.events == 1

    play(main)


def test_a_group_that_waited_for_a_bump_is_judged_after_it() -> None:
    async def main(scene: Scene) -> None:
        scene.faults["bump_shards"] = Fault.SLOW
        scene.database.work_seconds = lambda call: 0.5 if call.name == "bump_shards" else 0.001  # type: ignore[method-assign] # a slow disk
        async with asyncio.TaskGroup() as group:
            bumping = group.create_task(scene.stores[0].bump("one", {0: 1}))
            await asyncio.sleep(0.1)
            committing = group.create_task(scene.commit())
        assert bumping.result() == {0: 2}
        assert committing.result() == {0}
        assert scene.events == 0

    play(main)


def test_a_bump_that_finds_a_stalled_group_ends_its_backend_and_goes_on() -> None:
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = Fault.STALLED
        async with asyncio.TaskGroup() as group:
            stalled = group.create_task(_unknown_or_done(scene))
            await asyncio.sleep(0.1)
            began = scene.loop.now
            assert await scene.stores[0].bump("one", {0: 1}) == {0: 2}
            assert 0.9 < scene.loop.now - began < 2.0
            await stalled
        await asyncio.sleep(30.0)
        assert scene.events == 0

    play(main)


def test_a_backend_of_a_living_rival_is_left_alone_and_the_wait_ends_by_its_bound() -> None:
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = Fault.STALLED
        async with asyncio.TaskGroup() as group:
            group.create_task(_unknown_or_done(scene))
            await asyncio.sleep(0.1)
            with pytest.raises(WriteRaisedError) as caught:
                await scene.stores[1].acquire(0, "two", holds_term=False)
        assert caught.value.details["sqlstate"] == "55P03"

    play(main)


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        (Fault.LOST, False),
        (Fault.CUT, True),
        (Fault.DIED, False),
        (Fault.SILENT, True),
    ],
)
def test_a_call_of_unknown_outcome_has_happened_or_not(fault: Fault, happened: bool) -> None:  # noqa: FBT001 - a parameter of the test
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = fault
        with pytest.raises(OutcomeUnknownError):
            await scene.commit()
        await asyncio.sleep(1.0)
        assert scene.events == int(happened)

    play(main)


@pytest.mark.parametrize("fault", [Fault.DEADLOCK, Fault.SERIALIZATION])
def test_a_call_that_raises_has_not_happened(fault: Fault) -> None:
    async def main(scene: Scene) -> None:
        scene.faults["commit_group"] = fault
        with pytest.raises(WriteRaisedError):
            await scene.commit()
        assert scene.events == 0
        assert await scene.commit() == frozenset()

    play(main)


def test_the_database_away_refuses_everything_and_keeps_what_has_committed() -> None:
    async def main(scene: Scene) -> None:
        await scene.commit()
        scene.database.go_away()
        with pytest.raises(OutcomeUnknownError):
            await scene.stores[0].renew("one")
        with pytest.raises(UnavailableError):
            await scene.stores[0].events(0, EVENT.run_id)
        scene.database.come_back()
        assert await scene.stores[0].renew("one") is not None
        assert len(await scene.stores[0].events(0, EVENT.run_id)) == 1

    play(main)


def test_a_host_that_is_cut_off_times_out_and_its_call_arrives_if_it_waits() -> None:
    async def main(scene: Scene) -> None:
        database, blocked = scene.database, True
        database.delay = lambda source, target: (
            None if blocked and "one" in (source, target) else 0.0
        )
        with pytest.raises(OutcomeUnknownError):
            await scene.stores[0].renew("one")
        assert await scene.stores[1].renew("two") is not None
        async with asyncio.TaskGroup() as group:
            committing = group.create_task(scene.commit())
            await asyncio.sleep(2.0)
            assert scene.events == 0
            blocked = False
        assert committing.result() == frozenset()
        assert scene.events == 1

    play(main)


def test_what_a_killed_process_had_sent_is_carried_out_without_it() -> None:
    async def main(scene: Scene) -> None:
        process = Process(scene.loop, "killed")

        async def act() -> None:
            store = scene.database.store_type("one")("sim", "one", sizes=PoolSizes())
            await store.open()
            scene.faults["commit_group"] = Fault.STALLED
            await store.commit(Group("one", terms={0: 1}, events=[EVENT]))
            raise AssertionError("it is dead")

        task = process.create_task(act(), name="act")
        await asyncio.sleep(0.3)
        process.kill()
        backends = len(scene.database.backends)
        await asyncio.sleep(30.0)
        assert scene.events == 1
        assert not task.done()
        assert len(scene.database.backends) < backends

    play(main)
