"""The test bed: a cluster with proxies under load, one fault, and the judgement of what it cost."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from cluster.breaking import Breaker
from cluster.client_log import Entry, read
from cluster.proxy.faults import Fault
from cluster.undo import Broken
from cluster.verify import verify
from odin.client import Client
from odin.core.sharding import shard_of
from odin.errors import OdinError
from odin.runtime.clock import SystemClock
from tests.cluster.support import Running, started, until

from .evidence import Books
from .prober import Prober, pulse

ENGINES = ("engine-1", "engine-2", "engine-3")
LOAD_RATE = 10
QUIET_SECONDS = 3.0
CLOSE_SECONDS = 90.0
SHARD_COUNT = 64
# Short: what is measured is the shards, not how long a client waits before it asks again.
PROBE_TIMEOUT = timedelta(seconds=1.5)


@dataclass
class Told:
    """What a scenario came to.

    Attributes:
        name: Of the scenario.
        wrong: What is wrong; nothing if it holds.
        orders: Accepted while it ran, all of them judged.
        unanswered: Probes that were refused or left unknown, and asked again.
        stall: The longest time that a client waited for the answer to a start, in seconds.
        back: After how many seconds the orphaned shards served again; None if none were.
        pause: The longest pause at engines that nothing was done to; None if it does not matter.
    """

    name: str
    wrong: list[str] = field(default_factory=list)
    orders: int = 0
    unanswered: int = 0
    stall: float = 0.0
    back: float | None = None
    pause: float | None = None

    def line(self) -> str:
        verdict = "holds" if not self.wrong else "FAILED"
        back = "-" if self.back is None else f"{self.back:.1f} s"
        pause = "-" if self.pause is None else f"{self.pause:.1f} s"
        return (
            f"{self.name:<34} {verdict:<7} {self.orders:>6} {self.unanswered:>8} "
            f"{self.stall:>7.1f} s {back:>8} {pause:>8}"
        )


HEADER = (
    f"{'scenario':<34} {'verdict':<7} {'orders':>6} {'retried':>8} {'stall':>9} "
    f"{'back':>8} {'others':>8}"
)


class Bed:
    """A cluster to be broken."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.place = running.place
        self.breaker = Breaker(running.place, SystemClock())
        self.books = Books(running.secrets.postgres_dsn)
        self.clock = SystemClock()
        self.told = Told("")
        self.number = 0
        self.began = 0.0

    # --- what scenarios use -----------------------------------------------------------------------

    @property
    def addresses(self) -> dict[str, str]:
        """The engines' own addresses by name."""
        return {name: self.running.part(name).address for name in ENGINES}

    def others(self, *names: str) -> list[str]:
        """The engines that nothing is done to."""
        return [name for name in ENGINES if name not in names]

    def elapsed(self, since: float) -> float:
        return self.clock.boottime() - since

    async def cut(
        self, part: str, fault: Fault, seconds: float, *, to: str = "", from_: str = ""
    ) -> Broken:
        links = await self.breaker.links(part, to=to, from_=from_)
        return await self.breaker.break_links(links, fault, seconds)

    async def at_commit(self, engine: str, fault: Fault, seconds: float) -> Broken:
        """Set a fault at the engine's next commit and return when it has bitten."""
        broken = await self.cut(engine, fault, seconds, to="postgres")
        async with asyncio.timeout(10):
            while not await self.breaker.match_count(broken):
                await asyncio.sleep(0.01)
        return broken

    async def orphans(self, *engines: str) -> list[int]:
        """The shards of these engines, once they have some."""
        async with asyncio.timeout(60):
            while not (found := await self.books.owned(engines)):
                await asyncio.sleep(0.2)
        return found

    async def serve_again(
        self, shards: Iterable[int], addresses: Iterable[str], since: float, seconds: float
    ) -> None:
        """Note when all of these shards have accepted a start after `since`."""
        self.number += 1
        names = ids_on(set(shards), f"served-{self.number}")
        try:
            async with (
                Client(list(addresses), timeout=PROBE_TIMEOUT) as client,
                asyncio.timeout(3 * seconds),
                asyncio.TaskGroup() as group,
            ):
                for name in names:
                    group.create_task(_serves(client, name))
        except TimeoutError:
            self.told.wrong.append(f"shards serve again only after more than {3 * seconds:.0f} s")
            return
        self.told.back = max(self.told.back or 0.0, self.elapsed(since))
        if self.told.back > seconds:
            self.told.wrong.append(f"shards serve again after {self.told.back:.1f} s")

    @asynccontextmanager
    async def pulse(self, engines: Sequence[str]) -> AsyncIterator[None]:
        """Give each of these engines work at a steady rate, so that a pause of its own shows.

        However few shards it has: between all of them it would be asked for something too seldom.
        """
        self.number += 1
        stop = asyncio.Event()
        addresses = [self.addresses[one] for one in engines]
        kept = {one: set(await self.orphans(one)) for one in engines}
        async with asyncio.TaskGroup() as group:
            for engine, shards in kept.items():
                beats = beats_on(shards, f"pulse-{self.number}-{engine}")
                group.create_task(pulse(addresses, beats, stop))
            try:
                yield
            finally:
                stop.set()

    async def others_pause(self, names: Sequence[str], since: datetime, seconds: float) -> None:
        """Note the longest pause at these engines in the time since."""
        found = await self.books.pauses(names, since, await self.books.now())
        self.told.pause = max(found.values(), default=0.0)
        if self.told.pause > seconds:
            self.told.wrong.append(f"other owners pause: {found}")

    async def ready(self, *names: str) -> None:
        """Wait until the parts are ready."""
        for name in names or ENGINES:
            await until(partial(self._runs, name), 60, f"{name} is ready")

    def _runs(self, name: str) -> bool:
        return self.running.part(name).phase == "running"

    # --- one scenario -----------------------------------------------------------------------------

    async def play(self, name: str, scenario: Callable[[Bed], Awaitable[None]]) -> Told:
        """Run a scenario under load and judge everything that was accepted meanwhile."""
        self.told = Told(name)
        await self._whole()
        since, log_from = await self.books.now(), len(self._log())
        prober, stop = (
            Prober(f"{name}-{self.number}", list(self.addresses.values())),
            asyncio.Event(),
        )
        self.number += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(prober.run(stop))
                await asyncio.sleep(QUIET_SECONDS)
                try:
                    await scenario(self)
                    await self.breaker.heal()
                    await asyncio.sleep(QUIET_SECONDS)
                finally:
                    stop.set()
        finally:
            await self.breaker.heal()
        await self._whole()
        await self._judge(prober, since, log_from)
        return self.told

    async def _whole(self) -> None:
        """Wait until every part runs and every shard has a living owner."""
        parts = [one.name for one in self.running.state.parts if one.name != "load"]
        await self.ready(*parts)
        async with asyncio.timeout(60):
            while True:
                try:
                    owners = await self.books.owners()
                except OSError:
                    owners = {}
                if sum(owners.values()) == SHARD_COUNT:
                    return
                await asyncio.sleep(0.2)

    async def _judge(self, prober: Prober, since: datetime, log_from: int) -> None:
        told = self.told
        entries = self._log()[log_from:]
        told.stall = longest_stall(entries)
        ids = {one.workflow_id for one in entries if one.call == "start"}
        orders = {one for one in ids if one.startswith("order-")}
        told.unanswered = len(prober.unanswered)
        told.wrong += [f"asked again: {who}" for who in await prober.ask_again()]
        runs = await self.books.runs(prober.started)
        told.wrong += [
            f"{who} has {runs.get(who, 0)} runs" for who in prober.started if runs.get(who) != 1
        ]
        summary = await verify(
            self.running.secrets.postgres_dsn,
            self.place.client_log,
            ids=orders,
            wait_seconds=CLOSE_SECONDS,
        )
        told.orders = summary.counts.get("accepted", 0)
        told.wrong += [f"{what}: {who[:5]}" for what, who in summary.problems.items()]
        told.wrong += (await self.books.faults(since))[:10]
        if told.orders < LOAD_RATE:
            told.wrong.append("hardly any order was accepted: the scenario shows nothing")

    def _log(self) -> list[Entry]:
        return read(self.place.client_log) if self.place.client_log.exists() else []


def ids_on(shards: set[int], prefix: str) -> list[str]:
    """A workflow id on each of the shards."""
    left = set(shards)
    found: list[str] = []
    for number in itertools.count():
        if not left:
            return found
        shard = shard_of("default", name := f"{prefix}-{number}", SHARD_COUNT)
        if shard in left:
            left.discard(shard)
            found.append(name)
    raise AssertionError("unreachable")


def beats_on(shards: set[int], prefix: str) -> Iterator[str]:
    """Workflow ids on each of the shards, again and again."""
    for number in itertools.count():
        yield from ids_on(shards, f"{prefix}-{number}")


async def _serves(client: Client, workflow_id: str) -> None:
    """Start a run there, and ask again under the same request id until it is accepted."""
    while True:
        try:
            handle = await client.start_workflow(
                "bench_steps",
                args=[0, "x"],
                id=workflow_id,
                task_queue="nobody",
                request_id=f"r-{workflow_id}",
            )
        except OdinError:
            await asyncio.sleep(0.1)
            continue
        await handle.terminate(reason="only a probe")
        return


def longest_stall(entries: Sequence[Entry]) -> float:
    """The longest time between a start and its end, as the client saw it; open ones to the end."""
    begun: dict[str, datetime] = {}
    longest, last = 0.0, None
    for one in entries:
        at = last = datetime.fromisoformat(one.at)
        if one.operation == "invoke":
            begun[one.workflow_id] = at
        elif one.workflow_id in begun:
            longest = max(longest, (at - begun.pop(one.workflow_id)).total_seconds())
    if last is not None:
        longest = max([longest, *((last - at).total_seconds() for at in begun.values())])
    return longest


@asynccontextmanager
async def bed(folder: Path, *, in_steps: bool = False) -> AsyncIterator[Bed]:
    """Start a cluster with proxies under load; nothing of it is left after the block.

    With `in_steps` its engines commit by BEGIN, call, COMMIT.
    """
    arguments = ["--engines", "3", "--workers", "2", "--load", str(LOAD_RATE), "--proxies"]
    settings = {"ODIN_LOAD_SUBSCRIPTIONS": "3", "ODIN_DEBUG_COMMIT_STEPS": str(int(in_steps))}
    async with started(folder, "up", *arguments, settings=settings) as running:
        yield Bed(running)


def written(results: Iterable[Told]) -> str:
    """The results as JSON."""
    return msgspec.json.format(msgspec.json.encode(list(results)), indent=1).decode()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
