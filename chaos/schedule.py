"""The schedule: an experiment every ten minutes, the checker's word seven minutes after each began.

It begins nothing once it was told to halt, and halts by itself when the cluster does not come back
from an experiment: what came after would show nothing, and might do harm.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odin.errors import OdinError
from odin.runtime.clock import pause

from .faults.catalogue import lacking
from .halt import halt, is_halted
from .healing import NotHealedError
from .plan import slot
from .rotate import is_lost
from .scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Scenario, Slot, Timing
    from .result import Result
    from .runner import Runner

# The longest experiment with the looks before and after it, and what is open then.
LAST_SECONDS: Final = 180.0

log = logging.getLogger(__name__)


@dataclass
class Schedule:
    """The loop.

    Attributes:
        runner: Runs the experiments.
        timing: When.
        seed: Of the order and of the victims.
        load_seconds: When the load ends, from the begin on; 0: never.
    """

    runner: Runner
    timing: Timing
    seed: int
    load_seconds: float = 0.0

    async def __call__(self, stop: asyncio.Event) -> None:
        """Run experiments until told to stop."""
        clock = self.runner.clock
        began, number = clock.boottime(), 0
        log.info("chaos", extra={"seed": self.seed, "every_seconds": self.timing.every})
        if await pause(clock, stop, self.timing.first):
            return
        while not stop.is_set():
            place = slot(self.seed, number, self._available() or SCENARIOS, self.timing)
            number += 1
            if await pause(clock, stop, max(0.0, began + place.at - clock.boottime())):
                return
            if self.load_seconds and place.at + LAST_SECONDS > self.load_seconds:
                await stop.wait()
            elif is_halted(self.runner.levers.folder):
                log.info("halted: `odin chaos resume` lets it go on")
            else:
                await self._take(place, began, stop)

    def _available(self) -> Sequence[Scenario]:
        """Return what can be run here; nothing if the cluster does not run at the moment."""
        try:
            stage = self.runner.look()
            return [one for one in SCENARIOS if not lacking(one.needs, stage)]
        except OdinError:
            return ()

    async def _take(self, place: Slot, began: float, stop: asyncio.Event) -> None:
        """Run one experiment, and ask the checker when it is time."""
        try:
            result = await self._unless_stopped(place.scenario, stop)
        except NotHealedError as error:
            await self._halt(str(error))
            return
        except OdinError as error:
            log.warning("no experiment", extra={"scenario": place.scenario.name, "why": str(error)})
            return
        if result is None:
            return
        if is_lost(result):
            await self._halt(f"{result.experiment_id}: the cluster did not come back")
        clock = self.runner.clock
        if await pause(clock, stop, max(0.0, began + place.verdict_at - clock.boottime())):
            return
        await self.runner.ask_checker(result)
        log.info(
            "judged",
            extra={
                "experiment": result.experiment_id,
                "verdict": result.verdict,
                "checker": result.checker,
            },
        )

    async def _unless_stopped(self, scenario: Scenario, stop: asyncio.Event) -> Result | None:
        """Run an experiment; told to stop, cancel it, which heals, and return None.

        Raises:
            OdinError: as for `Runner.run`.
        """
        failed: list[OdinError] = []

        async def experiment() -> Result | None:
            try:
                return await self.runner.run(scenario, self.seed)
            except OdinError as error:
                failed.append(error)
                return None

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(stop.wait(), name="until told to stop")
            running = group.create_task(experiment(), name=scenario.name)
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            running.cancel()
        if failed:
            raise failed[0]
        return None if running.cancelled() else running.result()

    async def _halt(self, why: str) -> None:
        runner = self.runner
        log.error("chaos halts", extra={"why": why})
        done, wrong = await halt(runner.levers, runner.clock, runner.api_key)
        log.error("healed", extra={"done": done, "not_healed": wrong})
