"""Runs experiments on the cluster of one folder, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odin.errors import FailedPreconditionError

from .checking import checked
from .evidence import ended, kept
from .faults.books import Books
from .faults.catalogue import parameters_of
from .faults.dice import Dice
from .faults.stage import Stage
from .halt import is_halted
from .healing import NotHealedError, replayed
from .journal import Journal
from .kit import LOCAL, Kit
from .plan import worst
from .replay import changed
from .result import Result
from .run import Experiment, prepared
from .running import exclusive, read_running

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from odin.runtime.clock import Clock

    from .faults.levers import Reach
    from .journal import Line
    from .plan import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs experiments on the cluster of one folder, one at a time.

    Attributes:
        levers: Reach it.
        clock: Measures.
        api_key: The engines' token.
        tell: Is shown every line of the journal.
        kit: What can be done to this kind of cluster.
    """

    levers: Reach
    clock: Clock
    api_key: str | None = None
    tell: Callable[[Line], None] = lambda _: None
    kit: Kit = LOCAL

    async def run(self, scenario: Scenario, seed: int) -> Result:
        """Run one experiment.

        Raises:
            OdinError: no cluster runs, something is broken already, an experiment is under way, or
                something could not be healed.
        """
        with exclusive(self.levers.folder):
            await self._whole()
            return await self._experiment(scenario, seed).run()

    async def replay(self, first: Result) -> Result:
        """Run an experiment again as it was drawn: the same victims, parameters and durations.

        Raises:
            OdinError: as for `run`; or nothing was drawn, a target is gone, experiments are halted
                here, or a fault has other parameters now.
        """
        if first.draw is None:
            raise FailedPreconditionError(
                f"{first.experiment_id} cannot be run again: its record holds no draw",
                reason="NOT_DRAWN",
            )
        if is_halted(self.levers.folder):
            raise FailedPreconditionError(
                "experiments are halted here: `odin chaos resume` lets them go on", reason="HALTED"
            )
        draw = first.draw
        if other := changed(draw.parameters, parameters_of(draw.plan.faults)):
            raise FailedPreconditionError(
                f"this version breaks things otherwise: {'; '.join(other)}", reason="CHANGED"
            )
        with exclusive(self.levers.folder):
            await self._whole()
            # Once for the errors alone: a target that is gone is no experiment without a verdict.
            dice = Dice(first.seed, draw.values)
            await prepared(draw.plan, self._stage("rehearsal", draw.plan, dice), self.kit)
            experiment = self._experiment(draw.plan, first.seed, draw.values)
            experiment.result.replay_of = first.experiment_id
            return await experiment.run()

    async def _whole(self) -> None:
        """Undo what is left of earlier ones, and make sure that nothing else is broken.

        Raises:
            OdinError: something is, or cannot be undone.
        """
        await self.levers.refresh()
        await self.clean_up()
        if left := [one.what for one in self.levers.breaker.broken() if one.kind != "once"]:
            raise FailedPreconditionError(
                f"something is broken already: {'; '.join(left)} (`odin heal` heals it)"
            )

    async def clean_up(self) -> None:
        """Undo what a runner that was killed has left.

        Raises:
            NotHealedError: it cannot be undone.
        """
        running = read_running(self.levers.folder)
        if running is None:
            return
        wrong = await replayed(self.levers, self.api_key)
        journal = Journal(
            self.levers.folder, running.experiment_id, running.scenario, self.clock, self.tell
        )
        journal.write("halted", why="its runner was gone", wrong=wrong)
        if not wrong:
            books = Books(self.levers.secrets().postgres_dsn)
            await ended(books, running.experiment_id, self.clock.wall())
        else:
            raise NotHealedError(f"an earlier experiment is not healed: {'; '.join(wrong)}")

    def look(self) -> Stage:
        """Return the cluster as it is, to be looked at and not to be broken."""
        return Stage(self.levers, self.clock, Dice("none"), "look", 0.0, self.api_key)

    async def ask_checker(self, result: Result, until: datetime | None = None) -> None:
        """Let the checker judge the time since an experiment began; the worse verdict counts.

        Args:
            result: Of the experiment.
            until: Where the window ends; None for now.
        """
        dsn = self.levers.secrets().postgres_dsn
        books = Books(dsn)
        said, why = await checked(dsn, result.experiment_id, result.started_at, self.clock, until)
        result.checker = said
        result.verdict = worst([result.verdict, said])
        journal = Journal(
            self.levers.folder, result.experiment_id, result.scenario, self.clock, self.tell
        )
        journal.write("checked", verdict=said, why=why)
        await kept(books, result, "ended")

    def _stage(self, experiment_id: str, scenario: Scenario, dice: Dice) -> Stage:
        return Stage(
            levers=self.levers,
            clock=self.clock,
            dice=dice,
            experiment_id=experiment_id,
            seconds=scenario.hold_seconds,
            api_key=self.api_key,
        )

    def _experiment(
        self, scenario: Scenario, seed: int, given: dict[str, Any] | None = None
    ) -> Experiment:
        now = self.clock.wall()
        experiment_id = f"{now:%Y%m%d-%H%M%S}-{scenario.name}"
        stage = self._stage(experiment_id, scenario, Dice(f"{seed}/{scenario.name}", given))
        stage.state  # noqa: B018 - raises if there is no cluster
        journal = Journal(self.levers.folder, experiment_id, scenario.name, self.clock, self.tell)
        result = Result(
            experiment_id=experiment_id,
            scenario=scenario.name,
            seed=seed,
            started_at=now.isoformat(timespec="milliseconds"),
        )
        return Experiment(scenario, stage, journal, result, self.kit)
