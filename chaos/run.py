"""One experiment on a running cluster, from the look before to the verdict.

    steady? ─▶ undo on disk ─▶ inject ─▶ it bit? ─▶ hold, probing ─▶ heal ─▶ steady again? ─▶ judge

Whatever happens on the way, healing is tried: when it ends, when it is cancelled, by the next
runner if this one is killed, and for what the cluster has on record by the cluster itself.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odin.errors import FailedPreconditionError, OdinError

from .faults.catalogue import fault_of, lacking
from .faults.stage import Stage
from .faults.undo import undo
from .journal import Journal
from .probe import Prober, steady
from .result import Result, judge
from .running import Running, exclusive, forget_running, read_running, write_running
from .witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.runtime.clock import Clock

    from .faults.base import Fault
    from .faults.levers import Levers
    from .faults.undo import Undo
    from .journal import Line
    from .plan import Scenario

BEFORE_SECONDS: Final = 30.0
BEFORE_PROBE_SECONDS: Final = 2.0
AFTER_PROBE_SECONDS: Final = 3.0
PREPARE_SECONDS: Final = 20.0
HEAL_SECONDS: Final = 45.0
LOOK_SECONDS: Final = 0.25
STEADY_SECONDS: Final = 0.5


class NotHealedError(FailedPreconditionError):
    """Something that an experiment broke is still broken."""

    reason = "NOT_HEALED"


@dataclass
class Experiment:
    """One experiment.

    Attributes:
        scenario: What is done.
        stage: Where.
        journal: Takes what happens.
        result: What came of it so far.
    """

    scenario: Scenario
    stage: Stage
    journal: Journal
    result: Result
    _faults: list[tuple[str, Fault]] = field(default_factory=list)
    _looks: int = 0

    async def run(self) -> Result:
        """Run it to its end and judge it.

        Raises:
            NotHealedError: something could not be healed; it stays on record.
        """
        result, stage = self.result, self.stage
        self.journal.write("armed", seed=result.seed, hypothesis=self.scenario.hypothesis)
        result.reasons = lacking(self.scenario.needs, stage)
        if not result.reasons:
            result.is_steady_before = await self._is_steady("before", BEFORE_SECONDS) is not None
            if not result.is_steady_before:
                result.reasons = ["all was not well before"]
        if not result.reasons:
            await self._under_probes()
        result.ended_at = stage.clock.wall().isoformat(timespec="milliseconds")
        result.verdict = judge(result, self.scenario)
        self.journal.write("judged", **_shown(result))
        return result

    async def _under_probes(self) -> None:
        prober, stop, clock = Prober(self.stage), asyncio.Event(), self.stage.clock
        async with asyncio.TaskGroup() as group:
            self.stage.group = group
            probing = group.create_task(prober.run(stop), name="probes")
            try:
                await clock.sleep(BEFORE_PROBE_SECONDS)
                await self._broken()
                self.result.recovered_seconds = await self._is_steady(
                    "after", self.scenario.recover_seconds
                )
                await clock.sleep(AFTER_PROBE_SECONDS)
            except BaseException:
                probing.cancel()
                raise
            finally:
                stop.set()
        self.result.counts = prober.counts()
        try:
            self.result.wrong += (await prober.wrong())[:20]
        except OdinError as error:
            self.result.reasons.append(f"what became of the starts is not known: {error}")

    async def _broken(self) -> None:
        """Break, hold, and heal, in whatever way the block ends."""
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                steps = await self._prepare()
                witness = await Witness.at_once(self.stage)
        except (OdinError, TimeoutError) as error:
            self.result.reasons.append(f"could not be prepared: {said(error)}")
            return
        self._on_record(steps)
        try:
            ends = self.stage.clock.boottime()
            for name, fault in self._faults:
                await self._inject(name, fault)
                ends = self.stage.clock.boottime() + self.scenario.hold_seconds
                await self._verify(name, fault)
            await self._hold(witness, ends)
        finally:
            await self._heal()
        await self._claims(witness)

    async def _prepare(self) -> list[Undo]:
        steps: list[Undo] = []
        for name in self.scenario.faults:
            fault = fault_of(name, self.stage)
            steps += await fault.prepare()
            self._faults.append((name, fault))
            self.result.targets.append(fault.target)
        return steps

    def _on_record(self, steps: Sequence[Undo]) -> None:
        result = self.result
        running = Running(
            experiment_id=result.experiment_id,
            scenario=result.scenario,
            seed=result.seed,
            pid=os.getpid(),
            fingerprint=self.stage.levers.fingerprint(os.getpid()),
            started_at=result.started_at,
            undo=list(steps),
        )
        write_running(self.stage.folder, running)

    async def _inject(self, name: str, fault: Fault) -> None:
        try:
            async with asyncio.timeout(fault.inject_seconds):
                await fault.inject()
        except (OdinError, TimeoutError) as error:
            self.result.bites[name] = False
            self.result.reasons.append(f"{name}: {said(error)}")
        self.journal.write("injected", fault=name, target=fault.target)

    async def _verify(self, name: str, fault: Fault) -> None:
        if self.result.bites.get(name) is False:
            return
        try:
            async with asyncio.timeout(fault.verify_seconds + 2):
                bite = await fault.verify()
        except (OdinError, TimeoutError) as error:
            self.result.bites[name] = False
            self.journal.write("verified", fault=name, bit=False, why=said(error))
            return
        self.result.bites[name] = bite.is_seen
        self.journal.write("verified", fault=name, bit=bite.is_seen, evidence=bite.evidence)

    async def _hold(self, witness: Witness, ends: float) -> None:
        """Look for what is expected until it is time to heal."""
        left = list(self.scenario.expects)
        self.result.seen = dict.fromkeys(left, False)
        while self.stage.clock.boottime() < ends:
            await self._look(witness, left)
            await self.stage.clock.sleep(LOOK_SECONDS)
        await self._look(witness, left)
        for name in left:
            self.journal.write("seen", what=name, is_seen=False)

    async def _look(self, witness: Witness, left: list[str]) -> None:
        for name in list(left):
            try:
                found = await witness.look(name)
            except OdinError:  # Postgres may be the victim
                continue
            if found is not None:
                left.remove(name)
                self.result.seen[name] = True
                self.journal.write("seen", what=name, is_seen=True, evidence=found)

    async def _heal(self) -> None:
        """Heal everything, the last first; what cannot be healed stays on record."""
        wrong: list[str] = []
        for name, fault in reversed(self._faults):
            try:
                async with asyncio.timeout(HEAL_SECONDS):
                    await fault.heal()
            except (OdinError, TimeoutError, OSError) as error:
                wrong.append(f"{name}: {said(error)}")
        wrong += await replayed(self.stage.levers, self.stage.api_key)
        left = [one.what for one in self.stage.levers.breaker.broken() if one.kind != "once"]
        self.journal.write("healed", left=left, wrong=wrong)
        if left or wrong:
            self.result.wrong += [f"not healed: {one}" for one in [*left, *wrong]]
            raise NotHealedError(f"not healed: {'; '.join([*left, *wrong])}; `odin chaos halt`")

    async def _claims(self, witness: Witness) -> None:
        for name in self.scenario.claims:
            found = None
            try:
                found = await witness.look(name)
            except OdinError as error:
                self.result.reasons.append(f"{name}: {error}")
                continue
            self.result.claims[name] = found is not None
            self.journal.write("seen", what=name, is_seen=found is not None)

    async def _is_steady(self, when: str, seconds: float) -> float | None:
        """Wait until all is well; return after how long, None if it was not in time."""
        clock = self.stage.clock
        began = clock.boottime()
        wrong = ["nobody looked"]
        while clock.boottime() - began <= seconds:
            self._looks += 1
            began_look = clock.boottime()
            wrong = await steady(self.stage, self._looks)
            if not wrong:
                took = round(began_look - began, 2)
                self.journal.write("probed", when=when, steady=True, seconds=took)
                return took
            await clock.sleep(STEADY_SECONDS)
        self.journal.write("probed", when=when, steady=False, wrong=wrong[:5])
        return None


def said(error: Exception) -> str:
    """Return an error in words; a time-out has none of its own."""
    return str(error) or "no time"


async def replayed(levers: Levers, api_key: str | None) -> list[str]:
    """Undo what is on record, and forget it; return what could not be undone (it stays)."""
    running = read_running(levers.folder)
    if running is None:
        return []
    wrong = []
    for step in running.undo:
        try:
            async with asyncio.timeout(HEAL_SECONDS):
                await undo(step, levers, api_key)
        except (OdinError, TimeoutError, OSError) as error:
            wrong.append(f"{step.kind}: {said(error)}")
    if not wrong:
        forget_running(levers.folder)
    return wrong


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
        if wrong:
            raise NotHealedError(f"an earlier experiment is not healed: {'; '.join(wrong)}")

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


def _shown(result: Result) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "seed": result.seed,
        "started_at": result.started_at,
        "targets": result.targets,
        "bit": result.has_bitten,
        "bites": result.bites,
        "seen": result.seen,
        "claims": result.claims,
        "recovered_seconds": result.recovered_seconds,
        "counts": result.counts,
        "wrong": result.wrong,
        "reasons": result.reasons,
    }
