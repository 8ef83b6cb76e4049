from __future__ import annotations

import asyncio
import re
from datetime import UTC
from uuid import UUID

from odin.core.ids import check_id, check_run_id
from odin.runtime.clock import SystemClock, pause
from odin.runtime.ids import Ids, SeededIds, SystemIds, uuid7


def everything(ids: Ids) -> list[str | int]:
    return [
        ids.run_id(),
        ids.incarnation(),
        ids.claim_token(),
        ids.request_id(),
        ids.report_id(),
        ids.batch_random(),
    ]


async def test_a_pause_ends_at_once_when_the_stop_is_set() -> None:
    stop, started = asyncio.Event(), asyncio.Event()

    class Forever(SystemClock):
        async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - lasts for ever
            started.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        pausing = group.create_task(pause(Forever(), stop, 3_600))
        await started.wait()
        stop.set()
    assert pausing.result()
    assert await pause(Forever(), stop, 3_600)


async def test_a_pause_that_is_not_stopped_lasts_and_says_so() -> None:
    clock = SystemClock()
    before = clock.boottime()
    assert not await pause(clock, asyncio.Event(), 0.02)
    assert clock.boottime() - before >= 0.02


def test_the_wall_clock_is_aware_and_utc() -> None:
    assert SystemClock().wall().tzinfo is UTC


def test_run_ids_are_uuid7_of_now_and_never_the_same() -> None:
    made = [SystemIds().run_id() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert made[0] == check_run_id(made[0])
    first = UUID(made[0])
    assert (first.version, first.variant) == (7, "specified in RFC 4122")
    now_ms = SystemClock().wall().timestamp() * 1_000
    assert abs((first.int >> 80) - now_ms) < 60_000


def test_a_uuid7_keeps_all_of_its_random_bits() -> None:
    assert uuid7(0, 2**74 - 1) == "00000000-0000-7fff-bfff-ffffffffffff"
    assert uuid7(2**48 - 1, 0) == "ffffffff-ffff-7000-8000-000000000000"


def test_every_id_may_stand_where_ids_may_stand() -> None:
    for ids in (SystemIds(), SeededIds(1)):
        *texts, number = everything(ids)
        assert [check_id(str(text), "id") for text in texts] == texts
        assert isinstance(number, int)
        assert 0 <= number < 2**64
        assert re.fullmatch(r"[0-9a-f]{16}", ids.incarnation())


def test_a_seed_decides_every_id() -> None:
    assert everything(SeededIds(7)) == everything(SeededIds(7))
    assert set(everything(SeededIds(7))).isdisjoint(everything(SeededIds(8)))
    assert set(everything(SystemIds())).isdisjoint(everything(SystemIds()))
