from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC
from uuid import UUID

import pytest

from odin.core.ids import check_id, check_run_id
from odin.runtime.clock import SystemClock, Timer, every, pause
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
        def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:  # noqa: ARG002 - lasts for ever
            started.set()
            return super().call_later(3_600, callback)

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


async def test_a_pause_lets_its_task_be_cancelled_and_leaves_no_timer() -> None:
    made: list[asyncio.TimerHandle] = []

    class Watched(SystemClock):
        def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
            made.append(asyncio.get_running_loop().call_later(seconds, callback))
            return made[-1]

    stop = asyncio.Event()
    for cancels_at_its_end in (False, True):
        pausing = asyncio.create_task(pause(Watched(), stop, 0 if cancels_at_its_end else 3_600))
        await asyncio.sleep(0)
        if cancels_at_its_end:  # its time is up and it is cancelled, both before it runs again
            asyncio.get_running_loop().call_soon(pausing.cancel)
        else:
            pausing.cancel()
        await asyncio.wait({pausing})
        assert pausing.cancelled()
        assert made[-1].cancelled() or cancels_at_its_end
    assert len(made) == 2


async def test_a_pause_that_is_over_leaves_its_task_as_it_was() -> None:
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        assert not await pause(SystemClock(), stop, 0)
        assert task.cancelling() == 0
    asyncio.get_running_loop().call_soon(stop.set)
    assert await pause(SystemClock(), stop, 0)


async def test_a_beat_goes_on_until_the_stop_is_set_and_no_further() -> None:
    stop, count = asyncio.Event(), 0

    def call() -> None:
        nonlocal count
        count += 1
        if count == 3:
            stop.set()

    async with asyncio.timeout(5):
        await every(SystemClock(), stop, 0, call)
        await asyncio.sleep(0.01)
    assert count == 3


async def test_a_beat_that_fails_raises_what_it_met_and_leaves_its_task_as_it_was() -> None:
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        raise LookupError("lost")

    task = asyncio.current_task()
    assert task is not None
    async with asyncio.timeout(5):
        with pytest.raises(LookupError):
            await every(SystemClock(), asyncio.Event(), 0, call)
        await asyncio.sleep(0.01)
    assert (count, task.cancelling()) == (1, 0)


async def test_a_beat_that_is_cancelled_is_over() -> None:
    count, begun = 0, asyncio.Event()

    def call() -> None:
        nonlocal count
        count += 1
        begun.set()

    beating = asyncio.create_task(every(SystemClock(), asyncio.Event(), 0, call))
    async with asyncio.timeout(5):
        await begun.wait()
        beating.cancel()
        await asyncio.wait({beating})
    assert beating.cancelled()
    before = count
    await asyncio.sleep(0.01)
    assert count == before


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
