"""A few of the scenarios on one cluster under load; all of them run by `make faults`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .bed import Bed, bed
from .scenarios import SCENARIOS

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bed]:
    async with bed(tmp_path_factory.mktemp("faults") / "odin") as found:
        yield found


async def holds(place: Bed, name: str) -> None:
    told = await place.play(name, SCENARIOS[name])
    assert told.wrong == [], told.line()


async def test_a_killed_engine_costs_no_order_and_its_shards_serve_again_in_time(
    place: Bed,
) -> None:
    await holds(place, "engine-killed")


async def test_an_engine_that_is_told_to_end_hands_its_shards_over_within_a_second(
    place: Bed,
) -> None:
    await holds(place, "engine-told-to-end")


async def test_an_engine_frozen_in_the_middle_of_a_write_neither_blocks_nor_writes_late(
    place: Bed,
) -> None:
    await holds(place, "engine-frozen-sync-withheld")


async def test_sockets_cut_right_after_the_commit_was_sent_double_and_lose_nothing(
    place: Bed,
) -> None:
    await holds(place, "commit-cut")


async def test_a_memory_alarm_of_the_broker_costs_no_order(place: Bed) -> None:
    await holds(place, "rabbitmq-alarm")
