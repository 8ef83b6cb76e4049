"""The schedule: one experiment after the other, the checker's word, and when it stops by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from chaos.faults.levers import Levers
from chaos.faults.stage import NoClusterError, Stage
from chaos.halt import FILE, is_halted, resume
from chaos.healing import NotHealedError
from chaos.plan import Scenario, Timing, rotation
from chaos.result import Result
from chaos.runner import Runner
from chaos.scenarios import SCENARIOS
from chaos.schedule import Schedule
from odin.runtime.clock import SystemClock

CLOCK = SystemClock()
QUICK = Timing(every=0.05, verdict_after=0.02, first=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted(Runner):
    """Runs nothing: each experiment comes to what the script says."""

    script: Callable[[int], Result | NotHealedError]
    begun: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def look(self) -> Stage:
        raise NoClusterError("nothing runs here")

    async def run(self, scenario: Scenario, seed: int) -> Result:  # noqa: ARG002 - of Runner.run
        self.begun.append(scenario.name)
        found = self.script(len(self.begun))
        if isinstance(found, NotHealedError):
            raise found
        if found.experiment_id == "endless":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(scenario.name)
                raise
        return found

    async def ask_checker(self, result: Result, until: datetime | None = None) -> None:
        assert until is None  # up to now
        self.asked.append(result.experiment_id)


def came_back(number: int) -> Result:
    return Result(
        experiment_id=f"x-{number}",
        scenario="s",
        seed=3,
        started_at="2026-01-01T00:00:00+00:00",
        bites={"f": True},
        is_steady_before=True,
        recovered_seconds=1.0,
        verdict="pass",
    )


def lost(number: int) -> Result:
    found = came_back(number)
    found.recovered_seconds = None
    return found


def endless(number: int) -> Result:
    found = came_back(number)
    found.experiment_id = "endless"
    return found


def scheduled(
    folder: Path, script: Callable[[int], Result | NotHealedError], load_seconds: float = 0.0
) -> tuple[Scripted, Schedule]:
    runner = Scripted(levers=Levers(folder, CLOCK), clock=CLOCK, script=script)
    return runner, Schedule(runner, QUICK, 3, load_seconds)


async def until_seen(what: Callable[[], bool], schedule: Schedule) -> None:
    """Run the schedule until something is seen, then stop it in order."""
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(schedule(stop))
        while not what():
            await asyncio.sleep(0.01)
        stop.set()


async def test_experiments_come_in_the_order_of_the_seed_and_each_is_judged_by_the_checker(
    tmp_path: Path,
) -> None:
    runner, schedule = scheduled(tmp_path, came_back)
    await until_seen(lambda: len(runner.asked) >= 3, schedule)
    assert runner.begun[:3] == [one.name for one in rotation(3, 0, SCENARIOS)][:3]
    assert runner.asked[:3] == ["x-1", "x-2", "x-3"]


@pytest.mark.parametrize("script", [lost, lambda _: NotHealedError("a link is still cut")])
async def test_the_schedule_halts_when_the_cluster_does_not_come_back(
    tmp_path: Path, script: Callable[[int], Result | NotHealedError]
) -> None:
    runner, schedule = scheduled(tmp_path, script)
    await until_seen(lambda: is_halted(tmp_path), schedule)
    runner.begun.clear()
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(schedule(stop))
        await asyncio.sleep(5 * QUICK.every)
        stop.set()
    assert runner.begun == []


async def test_a_halted_schedule_goes_on_once_it_is_resumed(tmp_path: Path) -> None:
    runner, schedule = scheduled(tmp_path, came_back)
    (tmp_path / FILE).touch()
    resume(tmp_path)
    await until_seen(lambda: runner.begun != [], schedule)


async def test_a_schedule_that_is_told_to_stop_cancels_its_experiment(tmp_path: Path) -> None:
    runner, schedule = scheduled(tmp_path, endless)
    await until_seen(lambda: runner.begun != [], schedule)
    assert runner.cancelled == runner.begun
    assert runner.asked == []


async def test_nothing_begins_shortly_before_the_load_ends(tmp_path: Path) -> None:
    runner, schedule = scheduled(tmp_path, came_back, load_seconds=100.0)
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(schedule(stop))
        await asyncio.sleep(5 * QUICK.every)
        stop.set()
    assert runner.begun == []
