"""A server that takes nothing: told at once, and without giving up more terms than it must."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from engine.store.errors import WriteRaisedError
from engine.store.group import Group
from engine.ticket import GroupRaisedError
from odin.core.requests import Started
from odin.errors import StoreFullError

from .scene import id_on, scene, start

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'no luck' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON shard EXECUTE FUNCTION refuse()"""
ERROR = GroupRaisedError("rolled back", is_passing=True, sqlstate="53100")


async def test_a_shard_keeps_its_term_while_its_lane_waits_for_new_ranges_in_vain(dsn: str) -> None:
    async with scene(dsn) as place, asyncio.timeout(15):
        kept, lost = place.shards.terms[1], place.shards.terms[0]
        database = await asyncpg.connect(dsn)
        await database.execute(REFUSE)
        doubting = asyncio.create_task(place.lane.doubt({0: lost.range_id}, ERROR))
        while True:
            try:
                place.lane.check()
            except StoreFullError:
                break
            await asyncio.sleep(0.01)
        with pytest.raises(StoreFullError, match="no room left"):
            await place.handler.ask(start(id_on(1), "r-refused"))
        await asyncio.sleep(0.5)  # two more tries
        assert place.shards.terms[1] is kept
        assert kept.is_serving
        await database.execute("DROP TRIGGER refuse ON shard")
        await doubting
        place.lane.check()
        assert place.shards.terms[0].range_id > lost.range_id
        assert isinstance(await place.handler.ask(start(id_on(1), "r-accepted")), Started)
        await database.close()


async def test_a_start_for_which_there_is_no_room_is_refused_at_once_and_not_tried_again_alone(
    dsn: str,
) -> None:
    tried: list[Group] = []

    async def refuse(group: Group) -> None:
        tried.append(group)
        raise WriteRaisedError("rolled back", sqlstate="53100")

    async with scene(dsn) as place:
        place.store.before_commit = refuse
        with pytest.raises(StoreFullError):
            await place.handler.ask(start(id_on(0), "r-refused"))
    assert len(tried) == 1
