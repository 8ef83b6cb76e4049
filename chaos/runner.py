"""Runs experiments on the cluster of one folder, one at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odin.errors import FailedPreconditionError

from .checking import checked
from .evidence import ended, kept
from .faults.books import Books
from .faults.stage import Stage
from .healing import NotHealedError, replayed
from .journal import Journal
from .plan import worst
from .result import Result
from .run import Experiment
from .running import exclusive, read_running

if TYPE_CHECKING:
    from collections.abc import Callable

    from odin.runtime.clock import Clock

    from .faults.levers import Levers
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
    """

    levers: Levers
    clock: Clock
    api_key: str | None = None
    tell: Callable[[Line], None] = lambda _: None

    async def run(self, scenario: Scenario, seed: int) -> Result:
        """Run one experiment.

        Raises:
            OdinError: no cluster runs, something is broken already, an experiment is under way, or
                something could not be healed.
        """
        with exclusive(self.levers.folder):
            await self.clean_up()
            if left := [one.what for one in self.levers.breaker.broken() if one.kind != "once"]:
                raise FailedPreconditionError(
                    f"something is broken already: {'; '.join(left)} (`odin heal` heals it)"
                )
            return await self._experiment(scenario, seed).run()

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
        dice = random.Random(0)  # noqa: S311 - nothing is rolled with them
        return Stage(self.levers, self.clock, dice, "look", 0.0, self.api_key)

    async def ask_checker(self, result: Result) -> None:
        """Let the checker judge the time since an experiment began; the worse verdict counts."""
        books = Books(self.levers.secrets().postgres_dsn)
        said, why = await checked(
            self.levers.secrets().postgres_dsn, result.experiment_id, result.started_at, self.clock
        )
        result.checker = said
        result.verdict = worst([result.verdict, said])
        journal = Journal(
            self.levers.folder, result.experiment_id, result.scenario, self.clock, self.tell
        )
        journal.write("checked", verdict=said, why=why)
        await kept(books, result, "ended")

    def _experiment(self, scenario: Scenario, seed: int) -> Experiment:
        now = self.clock.wall()
        experiment_id = f"{now:%Y%m%d-%H%M%S}-{scenario.name}"
        stage = Stage(
            levers=self.levers,
            clock=self.clock,
            dice=random.Random(f"{seed}/{scenario.name}"),  # noqa: S311 - repeatable choices, no secret
            experiment_id=experiment_id,
            seconds=scenario.hold_seconds,
            api_key=self.api_key,
        )
        stage.state  # noqa: B018 - raises if there is no cluster
        journal = Journal(self.levers.folder, experiment_id, scenario.name, self.clock, self.tell)
        result = Result(
            experiment_id=experiment_id,
            scenario=scenario.name,
            seed=seed,
            started_at=now.isoformat(timespec="milliseconds"),
        )
        return Experiment(scenario, stage, journal, result)
