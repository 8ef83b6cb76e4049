"""What the tests of experiments share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from chaos.faults.dice import Dice
from chaos.faults.levers import Levers
from chaos.faults.stage import Stage
from chaos.journal import Line, read
from chaos.plan import Scenario, scenario_of
from chaos.runner import Runner
from chaos.scenarios import SCENARIOS
from odin.runtime.clock import SystemClock
from tests.cluster.support import Running, environ

CLOCK = SystemClock()


def runner_of(cluster: Running) -> Runner:
    return Runner(levers=Levers(cluster.place.folder, CLOCK), clock=CLOCK)


def short(name: str, **fields: Any) -> Scenario:  # noqa: ANN401 - the fields of a scenario
    """An experiment of the plan, held for a second only."""
    return replace(scenario_of(name, SCENARIOS), **{"hold_seconds": 1.0, **fields})


@asynccontextmanager
async def stage_of(cluster: Running, name: str) -> AsyncIterator[Stage]:
    """The cluster as one experiment sees it, without its probes."""
    levers = Levers(cluster.place.folder, CLOCK)
    async with asyncio.TaskGroup() as group:
        stage = Stage(levers, CLOCK, Dice(name), f"t-{name}", 3.0)
        stage.group = group
        await stage.choose_owner()
        yield stage


def command(*arguments: str, cluster: Running) -> list[str]:
    folder = str(cluster.place.folder)
    return [sys.executable, "-P", "-m", "odin.cli", "chaos", *arguments, "--folder", folder]


async def ask(*arguments: str, cluster: Running) -> tuple[int, str]:
    """Run `odin chaos …` to its end; return its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments, cluster=cluster),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ(),
    )
    async with asyncio.timeout(30):
        text, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, text.decode()


def lines(cluster: Running, phase: str) -> list[Line]:
    return [one for one in read(cluster.place.folder) if one.phase == phase]
