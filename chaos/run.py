"""One experiment on a running cluster, from the look before to the verdict.

    steady? ─▶ undo on disk ─▶ inject ─▶ it bit? ─▶ hold, probing ─▶ heal ─▶ steady again? ─▶ judge

Whatever happens on the way, healing is tried: when it ends, when it is cancelled, by the next
runner if this one is killed, and for what the cluster has on record by the cluster itself.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.errors import OdinError

from .evidence import kept
from .faults.catalogue import fault_of, parameters_of
from .healing import HEAL_SECONDS, NotHealedError, replayed, said
from .kit import LOCAL, Kit
from .probe import Prober, steady
from .result import Draw, judge
from .running import Running, read_running, write_running
from .witness import Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .faults.base import Fault
    from .faults.stage import Stage
    from .faults.undo import Undo
    from .journal import Journal
    from .plan import Scenario
    from .result import Result

BEFORE_SECONDS: Final = 30.0
BEFORE_PROBE_SECONDS: Final = 2.0
AFTER_PROBE_SECONDS: Final = 3.0
PREPARE_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.25
STEADY_SECONDS: Final = 0.5


@dataclass
class Experiment:
    """One experiment.

    Attributes:
        scenario: What is done.
        stage: Where.
        journal: Takes what happens.
        result: What came of it so far.
        kit: What can be done to this kind of cluster.
    """

    scenario: Scenario
    stage: Stage
    journal: Journal
    result: Result
    kit: Kit = LOCAL
    _faults: list[tuple[str, Fault]] = field(default_factory=list)
    _looks: int = 0

    async def run(self) -> Result:
        """Run it to its end and judge it.

        Raises:
            NotHealedError: something could not be healed; it stays on record.
        """
        result, stage = self.result, self.stage
        again = {"replay_of": result.replay_of} if result.replay_of else {}
        self.journal.write("armed", seed=result.seed, hypothesis=self.scenario.hypothesis, **again)
        result.reasons = self.kit.lacking(self.scenario, stage)
        await kept(stage.books, result, "running")
        try:
            await self._until_over()
        except asyncio.CancelledError:
            self.result.reasons.append("it was told to end")
            self.journal.write("halted", why="it was told to end")
            raise
        finally:
            result.ended_at = self._now()
            result.healed_at = result.healed_at or ("" if self._is_on_record else result.ended_at)
            result.verdict = judge(result, self.scenario)
            self.journal.write("judged", **_shown(result))
            await kept(stage.books, result, "ended")
        return result

    async def _until_over(self) -> None:
        result = self.result
        if not result.reasons:
            result.is_steady_before = await self._is_steady("before", BEFORE_SECONDS) is not None
            if not result.is_steady_before:
                result.reasons = ["all was not well before"]
        if not result.reasons:
            await self._under_probes()

    def _now(self) -> str:
        return self.stage.clock.wall().isoformat(timespec="milliseconds")

    @property
    def _is_on_record(self) -> bool:
        running = read_running(self.stage.folder)
        return running is not None and running.experiment_id == self.result.experiment_id

    async def _under_probes(self) -> None:
        prober, failed = Prober(self.stage), list[OdinError]()
        try:
            await self._break_under(prober)
        except* OdinError as group:
            failed = [one for one in group.exceptions if isinstance(one, OdinError)]
        self.result.counts = prober.counts()
        if failed:
            raise failed[0]
        try:
            self.result.wrong += (await prober.wrong())[:20]
            self.result.counts = prober.counts()
        except OdinError as error:
            self.result.reasons.append(f"what became of the starts is not known: {error}")

    async def _break_under(self, prober: Prober) -> None:
        """Break and heal while the probes go on; what fails comes out as a group."""
        stop, clock = asyncio.Event(), self.stage.clock
        async with asyncio.TaskGroup() as group:
            self.stage.group = group
            group.create_task(prober.run(stop), name="probes")
            await clock.sleep(BEFORE_PROBE_SECONDS)
            await self._broken()
            self.result.recovered_seconds = await self._is_steady(
                "after", self.scenario.recover_seconds
            )
            await clock.sleep(AFTER_PROBE_SECONDS)
            stop.set()

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
        steps, faults = await prepared(self.scenario, self.stage, self.kit)
        self._faults = faults
        self.result.targets = [fault.target for _, fault in faults]
        self.result.draw = Draw(
            plan=self.scenario,
            parameters=parameters_of(self.scenario.faults),
            values=self.stage.drawn,
        )
        self.journal.write("drawn", **msgspec.to_builtins(self.result.draw))
        await kept(self.stage.books, self.result, "running")
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
        seconds = sum(one.inject_seconds + one.verify_seconds + 2 for _, one in self._faults)
        self.stage.levers.guard(self.scenario.hold_seconds + seconds + HEAL_SECONDS)

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
        if not left and not wrong:
            self.result.healed_at = self._now()
            await kept(self.stage.books, self.result, "healed")
        else:
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
        last: list[str] = []
        while clock.boottime() - began <= seconds:
            self._looks += 1
            began_look = clock.boottime()
            wrong = await steady(self.stage, self._looks)
            if not wrong:
                took = round(began_look - began, 2)
                self.journal.write("probed", when=when, steady=True, seconds=took, last=last[:3])
                return took
            last = wrong
            await clock.sleep(STEADY_SECONDS)
        self.journal.write("probed", when=when, steady=False, wrong=last[:5])
        return None


async def prepared(
    scenario: Scenario, stage: Stage, kit: Kit = LOCAL
) -> tuple[list[Undo], list[tuple[str, Fault]]]:
    """Choose the victims and prepare every fault; nothing is broken yet.

    Returns:
        What undoes them, and the faults with their names.

    Raises:
        OdinError: one cannot be prepared here.
    """
    steps: list[Undo] = []
    faults: list[tuple[str, Fault]] = []
    await stage.choose_owner()
    for name in scenario.faults:
        fault = fault_of(name, stage, kit.faults)
        steps += await fault.prepare()
        faults.append((name, fault))
    return steps, faults


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
