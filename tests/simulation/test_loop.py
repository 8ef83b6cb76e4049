"""The simulation's loop keeps asyncio's promises, and gives one order for one seed everywhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import pytest

from .clocks import DatabaseClock, SimClock
from .ids import SimIds
from .loop import (
    START_SECONDS,
    DeadlockError,
    Process,
    RealWorldError,
    SimLoop,
    StepLimitError,
    UnhandledError,
    VirtualTimeoutError,
)
from .loop_parts import InOrder

ROOT = Path(__file__).parents[2]


def test_time_jumps_to_the_next_timer_and_no_real_second_passes() -> None:
    loop = SimLoop()

    async def sleep() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until(sleep(), limit_seconds=100_000) == START_SECONDS + 86_400
    loop.close()


def test_asyncio_works_as_it_does_on_its_own_loop() -> None:
    loop = SimLoop()
    variable: ContextVar[str] = ContextVar("variable", default="outer")
    seen: list[str] = []

    async def child(name: str, seconds: float) -> str:
        variable.set(name)
        await asyncio.sleep(seconds)
        seen.append(variable.get())
        return name

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(child("slow", 2.0))
            group.create_task(child("quick", 1.0))
        assert (slow.result(), seen, variable.get()) == ("slow", ["quick", "slow"], "outer")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await asyncio.Event().wait()
        assert loop.now == START_SECONDS + 5.0
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(child("never", 10.0))
                group.create_task(_fail())
        assert await asyncio.to_thread(sum, (1, 2)) == 3
        queue: asyncio.Queue[int] = asyncio.Queue()
        asyncio.get_running_loop().call_later(1.0, queue.put_nowait, 7)
        assert await asyncio.wait_for(queue.get(), 2.0) == 7

    loop.run_until(main())
    loop.close()


async def _fail() -> None:
    await asyncio.sleep(0)
    raise ValueError("on purpose")


def test_what_cannot_end_is_told_apart() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)

    async def raise_in_a_callback() -> None:
        asyncio.get_running_loop().call_soon(int, "not a number")
        await asyncio.sleep(1.0)

    for main, expected in [
        (wait_for_ever, DeadlockError),
        (spin, StepLimitError),
        (tick, VirtualTimeoutError),
        (raise_in_a_callback, UnhandledError),
    ]:
        loop = SimLoop(instant_steps_max=1_000)
        with pytest.raises(expected):
            loop.run_until(main())
        loop.close()


def test_real_io_is_refused() -> None:
    async def reach_out() -> None:
        with pytest.raises(RealWorldError):
            await asyncio.open_connection("127.0.0.1", 1)
        with pytest.raises(RealWorldError):
            await asyncio.create_subprocess_exec("true")

    loop = SimLoop()
    loop.run_until(reach_out())
    loop.close()


def test_a_killed_process_does_nothing_more_and_a_frozen_one_catches_up() -> None:
    loop = SimLoop()
    done: list[tuple[str, float]] = []
    tasks: list[asyncio.Task[None]] = []

    async def live(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                done.append((name, loop.now - START_SECONDS))
        finally:
            done.append((f"{name} cleaned up", loop.now))

    async def main() -> None:
        killed, frozen = Process(loop, "killed"), Process(loop, "frozen")
        cut: list[str] = []
        killed.on_end.append(lambda: cut.append("cut"))
        tasks.extend(one.create_task(live(one.name), name="live") for one in (killed, frozen))
        await asyncio.sleep(1.5)
        killed.kill()
        frozen.freeze()
        await asyncio.sleep(10)
        assert sorted(done) == [("frozen", 1.0), ("killed", 1.0)]
        assert cut == ["cut"]
        frozen.thaw()
        await asyncio.sleep(1.2)
        assert done[2:] == [("frozen", 11.5), ("frozen", 12.5)]
        frozen.kill()

    loop.run_until(main())
    loop.close()


def test_a_stream_jitters_without_overtaking() -> None:
    loop = SimLoop(5)
    arrived: list[int] = []

    async def main() -> None:
        stream, dice = InOrder(loop), loop.dice_for("stream")
        for number in range(100):
            stream.call_later(dice.choice([0.0, 0.1, 0.2]), partial(arrived.append, number))
        await asyncio.sleep(1.0)

    loop.run_until(main())
    assert arrived == list(range(100))
    loop.close()


def test_timers_of_one_instant_run_in_an_order_of_the_seed() -> None:
    def order(seed: int, *, shuffle_ties: bool = True) -> list[int]:
        loop, ran = SimLoop(seed, shuffle_ties=shuffle_ties), list[int]()

        async def main() -> None:
            for number in range(20):
                loop.call_later(1.0, ran.append, number)
            await asyncio.sleep(2.0)

        loop.run_until(main())
        loop.close()
        return ran

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1, shuffle_ties=False) == list(range(20))


def test_clocks_drift_and_step_each_on_its_own() -> None:
    loop = SimLoop()
    fast, database = SimClock(loop, drift=0.01, wall_offset=5.0), DatabaseClock(loop)

    async def main() -> None:
        boot, wall, stored = fast.boottime(), fast.wall(), database.now_us()
        await fast.sleep(101.0)
        assert loop.now == pytest.approx(START_SECONDS + 100.0)
        assert fast.boottime() - boot == pytest.approx(101.0)
        assert (fast.wall() - wall).total_seconds() == pytest.approx(101.0)
        assert database.now_us() - stored == pytest.approx(100_000_000, abs=2)
        fast.step_wall(-30.0)
        database.step(2.0)
        assert (fast.wall() - wall).total_seconds() == pytest.approx(71.0)
        assert fast.boottime() - boot == pytest.approx(101.0)
        assert database.now_us() - stored == pytest.approx(102_000_000, abs=2)

    loop.run_until(main())
    loop.close()


def test_ids_are_those_of_their_seed_and_name() -> None:
    def some(seed: int, name: str) -> list[object]:
        loop = SimLoop(seed)
        ids = SimIds(loop, name, SimClock(loop))
        made = [ids.run_id(), ids.incarnation(), ids.claim_token(), ids.batch_random()]
        loop.close()
        return made

    assert some(1, "a") == some(1, "a")
    assert not set(some(1, "a")) & set(some(1, "b"))
    assert not set(some(1, "a")) & set(some(2, "a"))


def turbulence(seed: int) -> int:
    """Run tasks that meet in locks, groups, sets and time-outs; return the trace's hash."""
    loop = SimLoop(seed)

    async def work(lock: asyncio.Lock, number: int) -> None:
        dice = loop.dice_for(f"work {number}")
        for _ in range(5):
            async with lock:
                await asyncio.sleep(dice.choice([0.0, 0.1, 0.2]))
            loop.note(f"worked {number}")
        if number == 13:
            raise ValueError("on purpose")
        await asyncio.Event().wait()

    async def main() -> None:
        locks = [asyncio.Lock() for _ in range(3)]
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(work(locks[number % 3], number))

    loop.run_until(main())
    loop.close()
    return loop.trace_hash


def test_a_seed_has_one_trace_in_every_process() -> None:
    here = turbulence(3)
    script = "from tests.simulation.test_loop import turbulence; print(turbulence(3))"
    there = {
        int(
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                cwd=ROOT,
                check=True,
                capture_output=True,
            ).stdout
        )
        for hash_seed in ("1", "2")
    }
    assert there == {here}
    assert turbulence(4) != here
