"""A write whose outcome nobody knows: its shards begin new ranges first, all of them, at once."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.store import Group
from odin.core.requests import Started
from odin.errors import NotOwnerError, OdinError, OutcomeUnknownError

from .scene import Held, Scene, id_on, lost, scene, start


async def ids_stored(admin: "asyncpg.Connection[Any]") -> set[str]:
    rows = await admin.fetch("SELECT workflow_id FROM execution")
    return {row[0] for row in rows}


async def two_in_doubt(place: Scene) -> Group:
    """Start a run on shard 0 and one on shard 1 in one group, and leave its outcome unknown."""
    place.store.before_commit = first = Held()
    plug = place.ask(start(id_on(7), "plug"))
    async with asyncio.timeout(5):
        await first.arrived.wait()  # while it is on its way, the two gather in the next group
    asked = [place.ask(start(id_on(shard_id), f"r-{shard_id}")) for shard_id in (0, 1)]
    for shard_id in (0, 1):
        await place.decided(f"r-{shard_id}")
    place.store.before_commit = doubtful = Held(lost())
    doubtful.go.set()
    first.go.set()
    for task in asked:
        with pytest.raises(OutcomeUnknownError):
            await task
    await plug
    [group] = doubtful.groups
    assert set(group.terms) == {0, 1}
    place.store.before_commit = None
    return group


async def test_a_late_statement_of_a_group_in_doubt_is_refused_in_every_shard_of_it(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    async with scene(dsn) as place:
        group = await two_in_doubt(place)
        committed = await place.store.commit_late(group)
        assert committed.refused == {0, 1}
        assert await ids_stored(admin) == {id_on(7)}


async def test_nothing_of_a_shard_in_doubt_is_decided_or_read_before_its_bump_has_committed(
    dsn: str,
) -> None:
    async with scene(dsn) as place:
        served: list[object] = []

        async def look() -> None:
            for shard_id in (0, 1):
                try:
                    async with asyncio.timeout(1):  # a term that serves would wait for this bump
                        served.append(await place.handler.ask(start(id_on(shard_id), "meanwhile")))
                except (OdinError, TimeoutError) as error:
                    served.append(type(error))

        place.store.before_bump = look
        await two_in_doubt(place)
        assert served == [NotOwnerError, NotOwnerError]
        assert "meanwhile" not in place.store.looked_up
        assert isinstance(await place.handler.ask(start(id_on(0), "after")), Started)


async def test_what_gathers_behind_a_group_in_doubt_goes_with_it(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    """It was decided on a state that may never have been: nothing of it may be written."""
    async with scene(dsn) as place:
        place.store.before_commit = held = Held(lost())
        doubtful = place.ask(start(id_on(0, "first"), "r-first"))
        await held.arrived.wait()
        behind = place.ask(start(id_on(0, "behind"), "r-behind"))
        await place.decided("r-behind")
        held.go.set()
        for task in (doubtful, behind):
            with pytest.raises(OutcomeUnknownError):
                await task
        await place.handler.ask(start(id_on(0, "after"), "r-after"))
        assert await ids_stored(admin) == {id_on(0, "after")}


async def test_a_write_that_is_refused_is_not_acknowledged_and_ends_the_term(
    dsn: str, admin: "asyncpg.Connection[Any]"
) -> None:
    async with scene(dsn) as place:
        term = place.shards.terms[0]
        await admin.execute("UPDATE shard SET range_id = range_id + 1 WHERE shard_id = 0")
        with pytest.raises(NotOwnerError):
            await place.handler.ask(start(id_on(0), "r"))
        assert term.is_over
        assert 0 not in place.shards.terms
        assert await ids_stored(admin) == set()
        assert place.effects.written == []
