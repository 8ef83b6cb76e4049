"""The simulated cluster: engines, workers, clients, network, broker and database on one seed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.auditor import judge
from tests.simulation.broker import Broker
from tests.simulation.clocks import SimClock
from tests.simulation.evidence import gather
from tests.simulation.loop import SimLoop
from tests.simulation.loop_parts import SimulationError
from tests.simulation.network import Network
from tests.simulation.nodes import EngineNode, Node, WorkerNode
from tests.simulation.process import HostProcess
from tests.simulation.seams import sealed
from tests.simulation.shown import watched
from tests.simulation.store import SimDatabase
from tests.simulation.workload import Ledger, Workload

if TYPE_CHECKING:
    from engine.node import Node as EngineParts

EVENTS_KEPT: Final = 400
PROBE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a world is, and how long it may take; seconds are virtual."""

    engines: int = 3
    workers: int = 2
    shard_count: int = 4
    lanes: int = 1
    orders: int = 14
    order_seconds: float = 20.0
    fault_seconds: float = 30.0
    faults: int = 10
    finish_seconds: float = 240.0
    quiet_seconds: float = 40.0
    service_faults: float = 0.05
    activity_slots: int = 4
    cached_workflows: int = 100
    drift: float = 0.002
    naps: int = 3
    nap_seconds: tuple[int, int] = (1, 6)


@dataclass(slots=True)
class Verdict:
    """What came of a world."""

    seed: int
    faults: list[str]
    seconds: float
    trace: int
    steps: int
    complaints: list[str]
    happenings: list[str]
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.complaints


class World:
    """Everything of one seed.

    Attributes:
        healed_at: Seconds after which nothing is wrong any more; the plan of the faults sets it.
    """

    def __init__(self, seed: int, shape: Shape = Shape()) -> None:
        self.seed = seed
        self.shape = shape
        self.loop = SimLoop(seed)
        self.random = self.loop.dice_for("world")
        self.services_dice = self.loop.dice_for("services")
        self.complaints: list[str] = []
        self.happenings: deque[str] = deque(maxlen=EVENTS_KEPT)
        self.network = Network(self.loop, self.loop.dice_for("network"))
        self.broker = Broker(self.network, self.loop.dice_for("broker"))
        self.clocks: dict[str, SimClock] = {}
        self.engines = [EngineNode(self, number) for number in range(shape.engines)]
        self.workers = [WorkerNode(self, number) for number in range(shape.workers)]
        self.ledger = Ledger(self)
        self.workload = Workload(self)
        self.parts: dict[HostProcess, EngineParts] = {}
        self.database = SimDatabase(self.loop)
        self.database.delay = self.network.delay
        self.healed_at = 0.0
        self.committed_us: dict[int, int] = {}
        self.stepped_back_us = 0
        self.database.on_commit.append(self._committed)

    def _committed(self, _backend: object) -> None:
        """Remember the latest time that an engine may rightly think it is at this commit.

        Engines do not follow the database's clock back: theirs is the time that it had shown.
        """
        now_us = self.database.clock.now_us() + self.stepped_back_us
        self.committed_us[self.database.txid] = now_us

    @property
    def nodes(self) -> list[Node]:
        """All machines with a program of odin's."""
        return [*self.engines, *self.workers]

    def new_process(self, host: str, number: int) -> HostProcess:
        """Return a process on a host, whose clock goes on."""
        clock = self.clocks.get(host)
        if clock is None:
            dice = self.random
            clock = self.clocks[host] = SimClock(
                self.loop,
                boot_seconds=dice.uniform(0.0, 1e6),
                drift=dice.uniform(-1, 1) * self.shape.drift,
                wall_offset=dice.uniform(-5.0, 5.0),
            )
        return HostProcess(self, host, number, clock)

    def note(self, what: str, *details: object) -> None:
        """Remember a happening; it is part of the trace."""
        text = " ".join([what, *(str(one) for one in details)])
        self.loop.note(text)
        self.happenings.append(f"{self.loop.time():9.3f} {text}")

    def complain(self, what: str) -> None:
        """Something is wrong."""
        self.note("WRONG", what)
        if len(self.complaints) < 50:
            self.complaints.append(what)

    def node_began(self, process: HostProcess, parts: EngineParts) -> None:
        """An engine's incarnation has its parts."""
        self.parts = {one: its for one, its in self.parts.items() if one.is_alive}
        self.parts[process] = parts
        self.note("incarnation", process.name, parts.membership.incarnation)

    # --- its life --------------------------------------------------------------------------------

    def run(self, faults: Callable[[World], list[str]] | None = None) -> Verdict:
        """Live through the seed, and be judged."""
        names: list[str] = []
        with sealed(), watched(), _quiet():
            try:
                for node in self.nodes:
                    node.start()
                if faults is not None:
                    names = faults(self)
                self.loop.run_until(self._live(), self._longest())
            except SimulationError as error:
                self.complain(f"{type(error).__name__}: {str(error)[:500]}")
            complaints = self.complaints + judge(gather(self, names))
            verdict = Verdict(
                self.seed, names, self.loop.time() - 1_000.0, self.loop.trace_hash,
                self.loop.steps, complaints, list(self.happenings), dict(self.broker.counts),
            )  # fmt: skip
            self.loop.close()
        return verdict

    def _longest(self) -> float:
        shape = self.shape
        return shape.fault_seconds + shape.finish_seconds + shape.quiet_seconds + 60.0

    async def _live(self) -> None:
        self.loop.call_later(PROBE_SECONDS, self._probe)
        shape = self.shape
        clients = self.new_process("c0", 1)
        done = asyncio.Event()

        async def drive() -> None:
            try:
                await self.workload.run()
            except* Exception as group:  # noqa: BLE001 - every error of a client is to be judged
                for error in group.exceptions:
                    self.complain(f"a client ended: {type(error).__name__}: {error}")
            done.set()

        driving = clients.create_task(drive(), name="clients")
        await asyncio.sleep(self.healed_at)
        self.note("all healed")
        try:
            async with asyncio.timeout(shape.finish_seconds):
                await done.wait()
        except TimeoutError:
            left = [order.name for order in self.workload.orders if order.outcome is None]
            driving.cancel()
            self.complain(f"not finished {shape.finish_seconds} s after the last fault: {left}")
            return
        self.note("finished")
        with suppress(TimeoutError):
            async with asyncio.timeout(shape.quiet_seconds):
                while not self.is_quiet():
                    await asyncio.sleep(0.5)
        self.note("quiet")

    def is_quiet(self) -> bool:
        """Whether nothing is left to be published."""
        return not self.database.tables.outbox

    def _probe(self) -> None:
        """No shard has two nodes that would answer for it now."""
        self.loop.call_later(PROBE_SECONDS, self._probe)
        held: set[int] = set()
        for parts in self.parts.values():
            for shard_id in parts.shards.terms:
                if shard_id in held:  # by what their leases say only one of them answers
                    self._judge_answering(shard_id)
                held.add(shard_id)

    def _judge_answering(self, shard_id: int) -> None:
        answering = [
            process.name
            for process, parts in self.parts.items()
            if not process.is_held
            and parts.membership.may_serve()
            and (term := parts.shards.terms.get(shard_id)) is not None
            and term.is_serving
        ]
        if len(answering) > 1:
            self.complain(f"shard {shard_id}: {' and '.join(answering)} both answer")


class _quiet:  # noqa: N801 - used like a function
    """No logs, no collector: both would cost more than the simulation."""

    def __enter__(self) -> None:
        self._disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        self._collects = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        logging.disable(self._disabled)
        if self._collects:
            gc.enable()
