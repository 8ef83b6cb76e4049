"""What a client sees: starts at a steady pace, each asked for until accepted, each to its end.

Every start has one request id, however often it is asked, so that it must come to exactly one run.
Beside short runs there are orders, if the mock services are there: they are what is to be charged
once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from odin.client import Client
from odin.errors import OdinError, ResourceExhaustedError
from odin.runtime.clock import pause

from .agreement import agreement
from .faults.books import BooksClosedError
from .faults.processes import run_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.requests import Outcome

    from .faults.stage import Stage

EVERY_SECONDS: Final = 0.4
# Every so many starts one is an order.
ORDER_EVERY: Final = 4
PATIENCE: Final = timedelta(seconds=1.5)
AGAIN_SECONDS: Final = 0.1
REFUSED_SECONDS: Final = 1.0
# A lost attempt is found by its time-out of up to a minute; an order takes half a minute by itself.
FINISH_SECONDS: Final = 120.0
ORIGIN: Final = "chaos"
# Starts of the look whether all is well, and how soon each must be accepted and finished.
STEADY_COUNT: Final = 6
STEADY_SECONDS: Final = 6.0
_ENDED: Final = ("completed", "failed")


@dataclass(slots=True)
class Probe:
    """One start.

    Attributes:
        workflow_id: Its run.
        begun: When it was first asked for, in seconds of the stage's clock.
        accepted: When it was accepted; None if it was not yet.
        waits_since: Since when it waits for an answer: since it was begun, or asked again after a
            refusal, which is an answer too.
        longest_wait: The longest that it waited for any answer, seconds.
        refusals: How often admission refused it.
        asked: How often it was asked for.
        finished: Whether its run has closed.
        outcome: How, as its client was told.
    """

    workflow_id: str
    begun: float
    accepted: float | None = None
    waits_since: float = 0.0
    longest_wait: float = 0.0
    refusals: int = 0
    asked: int = 0
    finished: bool = False
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        """It waits from the begin on."""
        self.waits_since = self.begun

    def answered(self, at: float) -> None:
        """Note that an answer came, of whatever kind."""
        self.longest_wait = max(self.longest_wait, at - self.waits_since)
        self.waits_since = at


@dataclass
class Prober:
    """The starts of one experiment."""

    stage: Stage
    probes: list[Probe] = field(default_factory=list)
    compared_count: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Start until told to stop; then wait until everything that was begun has ended."""
        stage = self.stage
        engines = list(stage.state.engines)
        with_orders = bool(stage.names("mock"))
        async with _Clients(engines, stage.api_key) as clients, asyncio.TaskGroup() as group:
            while not await pause(stage.clock, stop, EVERY_SECONDS):
                number = len(self.probes)
                is_order = with_orders and number % ORDER_EVERY == ORDER_EVERY - 1
                kind = "order" if is_order else "probe"
                name = f"chaos-{stage.experiment_id}-{kind}-{number}"
                probe = Probe(name, stage.clock.boottime())
                self.probes.append(probe)
                client = clients.of(number)
                group.create_task(self._one(client, probe, is_order=is_order), name=name)

    async def _one(self, client: Client, probe: Probe, *, is_order: bool) -> None:
        clock = self.stage.clock
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._accept(client, probe, is_order=is_order)
                handle = client.get_workflow_handle(probe.workflow_id)
                while not probe.finished:
                    try:
                        outcome = await handle.wait()
                    except OdinError:
                        await clock.sleep(AGAIN_SECONDS)
                        continue
                    probe.finished, probe.outcome = outcome.status in _ENDED, outcome
                    if not probe.finished:
                        return
        except TimeoutError:
            return

    async def _accept(self, client: Client, probe: Probe, *, is_order: bool) -> None:
        workflow, arguments = (
            ("Order", [_purchase(probe.workflow_id)]) if is_order else ("bench_steps", [1, "x"])
        )
        while probe.accepted is None:
            probe.asked += 1
            try:
                await client.start_workflow(
                    workflow,
                    args=arguments,
                    id=probe.workflow_id,
                    request_id=f"r-{probe.workflow_id}",
                    origin=ORIGIN,
                )
            except ResourceExhaustedError:
                probe.refusals += 1
                probe.answered(self.stage.clock.boottime())
                await self.stage.clock.sleep(REFUSED_SECONDS)
                probe.waits_since = self.stage.clock.boottime()
            except OdinError:
                await self.stage.clock.sleep(AGAIN_SECONDS)
            else:
                probe.accepted = self.stage.clock.boottime()
                probe.answered(probe.accepted)

    # --- what came of it --------------------------------------------------------------------------

    @property
    def longest_stall(self) -> float:
        """The longest that a start has waited for an answer so far, in seconds."""
        now = self.stage.clock.boottime()
        waits = [
            max(one.longest_wait, now - one.waits_since if one.accepted is None else 0.0)
            for one in self.probes
        ]
        return round(max(waits, default=0.0), 2)

    @property
    def longest_until_accepted(self) -> float:
        """The longest from the first asking to the acceptance, refusals included, in seconds."""
        waits = [one.accepted - one.begun for one in self.probes if one.accepted is not None]
        return round(max(waits, default=0.0), 2)

    def counts(self) -> dict[str, Any]:
        """Return what became of the starts."""
        return {
            "started": len(self.probes),
            "accepted": sum(one.accepted is not None for one in self.probes),
            "finished": sum(one.finished for one in self.probes),
            "asked again": sum(one.asked > 1 for one in self.probes),
            "refused": sum(one.refusals for one in self.probes),
            "longest stall": self.longest_stall,
            "longest until accepted": self.longest_until_accepted,
            "answers compared": self.compared_count,
        }

    async def wrong(self) -> list[str]:
        """Return what must not be: lost, doubled or unfinished starts, orders charged twice.

        And what engines say otherwise than another has said.

        Raises:
            BooksClosedError: Postgres does not answer.
        """
        found = [
            f"{one.workflow_id} was accepted and has not finished"
            for one in self.probes
            if one.accepted is not None and not one.finished
        ]
        found += [
            f"{one.workflow_id} was never accepted" for one in self.probes if one.accepted is None
        ]
        ids = [one.workflow_id for one in self.probes if one.accepted is not None]
        rows = await self.stage.books.fetch("read_runs", ids)
        runs = {str(row["workflow_id"]): int(row["runs"]) for row in rows}
        found += [f"{one} has {runs.get(one, 0)} runs" for one in ids if runs.get(one) != 1]
        again = await self.stage.books.fetch("read_charged_again", ids)
        told = {one.workflow_id: one.outcome for one in self.probes if one.outcome is not None}
        engines = list(self.stage.state.engines)
        differing, self.compared_count = await agreement(engines, self.stage.api_key, told)
        return [*found, *(f"{row['order_id']} was charged twice" for row in again), *differing]


async def steady(stage: Stage, number: int) -> list[str]:
    """Look whether all is well; return what is not.

    Every part runs, every shard has an owner with a live lease, and a few starts, through every
    engine, are accepted and finished at once.

    Args:
        stage: The cluster.
        number: Makes the names of the starts.
    """
    try:
        await stage.levers.refresh()
    except OdinError as error:
        return [str(error)]
    wrong = _parts(stage)
    if not wrong:
        wrong = await _shards(stage)
    return wrong or await _starts(stage, number)


def _parts(stage: Stage) -> list[str]:
    wrong = []
    for one in stage.state.parts:
        if one.phase not in ("running", "done"):
            wrong.append(f"{one.name} is {one.phase}")
        elif one.pid is not None and run_state(one.pid) in ("T", "gone"):
            wrong.append(f"{one.name} does not run")
    return wrong


async def _shards(stage: Stage) -> list[str]:
    try:
        count = await stage.books.value("count_shards")
        owned = sum((await stage.books.owners()).values())
    except BooksClosedError as error:
        return [str(error)]
    return [] if owned == count else [f"{count - owned} shards have no living owner"]


async def _starts(stage: Stage, number: int) -> list[str]:
    wrong: list[str] = []

    async def one(client: Client, name: str) -> None:
        try:
            async with asyncio.timeout(STEADY_SECONDS):
                handle = await client.start_workflow(
                    "bench_steps", args=[1, "x"], id=name, origin=ORIGIN
                )
                await handle.wait()
        except (OdinError, TimeoutError) as error:
            wrong.append(f"a start did not finish in {STEADY_SECONDS:.0f} s: {error}")

    prefix = f"chaos-{stage.experiment_id}-steady-{number}"
    async with (
        _Clients(list(stage.state.engines), stage.api_key) as clients,
        asyncio.TaskGroup() as group,
    ):
        for place in range(STEADY_COUNT):
            group.create_task(one(clients.of(place), f"{prefix}-{place}"))
    return wrong


class _Clients:
    """A client for every engine to begin with; each asks the others when its own is silent."""

    def __init__(self, engines: Sequence[str], api_key: str | None) -> None:
        self._clients = [
            Client(
                [*engines[place:], *engines[:place]],
                api_key=api_key,
                identity="chaos",
                timeout=PATIENCE,
            )
            for place in range(len(engines))
        ]

    def of(self, number: int) -> Client:
        """Return the client for start number so-and-so."""
        return self._clients[number % len(self._clients)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self._clients:
            await one.close()


def _purchase(order_id: str) -> dict[str, Any]:
    return {
        "order_id": order_id,
        "sku": "sku-01",
        "quantity": 1,
        "amount_cents": 500,
        "card": "card-chaos",
        "limit_seconds": 100.0,
    }
