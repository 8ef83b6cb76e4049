"""Faults of links, by the proxies that stand in every one of them."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError, NotFoundError

from .base import Bite
from .processes import MARGIN_SECONDS, run_state
from .undo import CLUSTER, Undo

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from .levers import Broken, Link, LinkView
    from .stage import Stage

COMMIT: Final = "commit_group"
MATCH_SECONDS: Final = 12.0
ANSWER_SECONDS: Final = 1.5
# What is said to a dependency to get any answer at all: Postgres's SSLRequest, AMQP's greeting, …
_HELLO: Final = {
    "postgres": struct.pack("!ii", 8, 80877103),
    "broker": b"AMQP\x00\x00\x09\x01",
    "valkey": b"PING\r\n",
}
_HELLO_HTTP: Final = b"GET /v1/health HTTP/1.0\r\nHost: chaos\r\n\r\n"
LINKS_TRIED_MAX: Final = 6
CUTS: Final = 3
CUT_GAP_SECONDS: Final = 0.5
SWIZZLE_SECONDS: Final = 1.0
SWIZZLE_LINKS: Final = 8


class Cut:
    """One fault on the links of a part: whatever the proxy can do without a pattern."""

    inject_seconds = 10.0
    verify_seconds = 10.0

    def __init__(
        self,
        stage: Stage,
        part: str,
        fault: object,
        *,
        to: str = "",
        from_: str = "",
        slower_seconds: float = 0.0,
    ) -> None:
        """Remember what to cut.

        Args:
            stage: The cluster.
            part: Whose links.
            fault: What is wrong with them.
            to: The dependency; all of them if it is empty.
            from_: Who reaches the part.
            slower_seconds: What an answer must take to have been slowed; 0: none may come.
        """
        self._stage = stage
        self._part = part
        self._fault = fault
        self._to = to
        self._from = from_
        self._slower_seconds = slower_seconds
        self._links: list[Link] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return f"{self._part}, {len(self._links)} links to {self._to or self._from or 'all'}"

    async def prepare(self) -> Sequence[Undo]:
        """Find the links; the cluster's record and the proxy itself heal them."""
        self._links = await self._stage.levers.breaker.links(
            self._part, to=self._to, from_=self._from
        )
        return [CLUSTER]

    async def inject(self) -> None:
        """Cut them."""
        seconds = self._stage.seconds + MARGIN_SECONDS
        await self._stage.levers.breaker.break_links(self._links, self._fault, seconds)

    async def verify(self) -> Bite:
        """Speak through each of the first few links, and see how the answer fails."""
        found = await tried(self._stage, self._links[:LINKS_TRIED_MAX])
        if self._slower_seconds:
            is_seen = all(
                isinstance(said, float) and said >= self._slower_seconds for said in found.values()
            )
        else:
            is_seen = all(isinstance(said, str) for said in found.values())
        return Bite(bool(found) and is_seen, {"answers": found})

    async def heal(self) -> None:
        """Mend them."""
        await heal_links(self._stage)


class CutAfterCommit:
    """The line of an engine is cut right after a commit was sent, a few times."""

    inject_seconds = CUTS * (MATCH_SECONDS + CUT_GAP_SECONDS + 1)
    verify_seconds = 5.0

    def __init__(self, stage: Stage, engine: str) -> None:
        self._stage = stage
        self._engine = engine
        self._links: list[Link] = []
        self._matches: list[int] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return f"{self._engine} → postgres"

    async def prepare(self) -> Sequence[Undo]:
        """Find the link."""
        breaker = self._stage.levers.breaker
        self._links = await breaker.links(self._engine, to="postgres")
        return [CLUSTER]

    async def inject(self) -> None:
        """Cut at the next commit, and again."""
        fault = self._stage.levers.link_fault(mode="cut_after", pattern=COMMIT, is_statement=True)
        for _ in range(CUTS):
            self._matches.append(await until_matched(self._stage, self._links, fault))
            await heal_links(self._stage)
            await self._stage.clock.sleep(CUT_GAP_SECONDS)

    async def verify(self) -> Bite:
        """Each of the cuts has found its commit."""
        return Bite(all(self._matches) and len(self._matches) == CUTS, {"cuts": self._matches})

    async def heal(self) -> None:
        """Mend the link."""
        await heal_links(self._stage)


class PauseInCommit:
    """An engine stands still with the lock of its shards, its commit withheld."""

    inject_seconds = MATCH_SECONDS + 5
    verify_seconds = 5.0

    def __init__(self, stage: Stage, engine: str) -> None:
        self._stage = stage
        self._engine = engine
        self._links: list[Link] = []
        self._match_count = 0
        self._stopped: list[tuple[int, str]] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return self._engine

    async def prepare(self) -> Sequence[Undo]:
        """Find the link; the cluster's record heals both."""
        self._links = await self._stage.levers.breaker.links(self._engine, to="postgres")
        return [CLUSTER]

    async def inject(self) -> None:
        """Withhold the end of the next commit, then stop the engine."""
        fault = self._stage.levers.link_fault(
            mode="freeze_before", pattern=COMMIT, is_statement=True
        )
        self._match_count = await until_matched(self._stage, self._links, fault)
        seconds = self._stage.seconds + MARGIN_SECONDS
        self._stopped = self._stage.levers.breaker.freeze([self._engine], seconds).processes

    async def verify(self) -> Bite:
        """A commit was withheld, and the engine stands."""

        def states() -> dict[str, str]:
            return {str(pid): run_state(pid) for pid, _ in self._stopped}

        # A process that is on its way onto a busy processor stops once it gets there.
        stands = await self._stage.until(lambda: set(states().values()) == {"T"}, 5.0)
        evidence = {"commits withheld": self._match_count, "states": states()}
        return Bite(stands and self._match_count > 0, evidence)

    async def heal(self) -> None:
        """Let it go on."""
        await self._stage.levers.breaker.heal()


class Swizzle:
    """Links stop one after the other, and are mended in another order.

    Never all links to Postgres or to the broker: that would be a whole server away, and another
    experiment.
    """

    inject_seconds = SWIZZLE_LINKS * (SWIZZLE_SECONDS + 2)
    verify_seconds = 10.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._links: list[Link] = []
        self._mending: list[str] = []
        self._broken: list[Broken] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return ", ".join(str(one) for one in self._links)

    async def prepare(self) -> Sequence[Undo]:
        """Choose some links, and the order in which they are to be mended."""
        views = await self._stage.levers.breaker.link_views()
        there = {str(one.name): one.name for one in views if one.name.part != "load"}
        draw = self._stage.dice.draw
        chosen = draw("links", lambda dice: some_links(there, dice), there)
        if not chosen:
            raise NotFoundError("there is no link to stop")
        self._links = [there[name] for name in chosen]
        self._mending = draw("mending", lambda dice: shuffled(chosen, dice), chosen)
        return [CLUSTER]

    async def inject(self) -> None:
        """Stop one after the other."""
        fault = self._stage.levers.link_fault(mode="blackhole")
        seconds = self._stage.seconds + self.inject_seconds + MARGIN_SECONDS
        for one in self._links:
            broken = await self._stage.levers.breaker.break_links([one], fault, seconds)
            self._broken.append(broken)
            await self._stage.clock.sleep(SWIZZLE_SECONDS)

    async def verify(self) -> Bite:
        """Nobody answers over any of them."""
        found = await tried(self._stage, self._links)
        return Bite(all(isinstance(said, str) for said in found.values()), {"answers": found})

    async def heal(self) -> None:
        """Mend them in another order, one after the other."""
        # Told to end in the middle, it has stopped fewer than it chose.
        stopped = dict(zip(map(str, self._links), self._broken, strict=False))
        for name in self._mending:
            if name not in stopped:
                continue
            await self._stage.levers.breaker.heal(partial(_is_named, stopped[name].id))
            await self._stage.clock.sleep(SWIZZLE_SECONDS)
        self._broken = []
        await heal_links(self._stage)


def some_links(there: Mapping[str, Link], dice: random.Random) -> list[str]:
    """Return links to stop: at most one to Postgres, and one to the broker."""
    found: list[str] = []
    taken: set[str] = set()
    for name in shuffled(there, dice):
        dependency = there[name].dependency
        if dependency in ("postgres", "broker"):
            if dependency in taken:
                continue
            taken.add(dependency)
        found.append(name)
    return found[:SWIZZLE_LINKS]


def shuffled(names: Iterable[str], dice: random.Random) -> list[str]:
    """Return them in another order."""
    found = list(names)
    dice.shuffle(found)
    return found


def _is_named(wanted: str, one: Broken) -> bool:
    return one.id == wanted


async def heal_links(stage: Stage) -> None:
    """Mend every link."""
    await stage.levers.breaker.heal(lambda one: one.kind == "links")


async def until_matched(stage: Stage, links: Sequence[Link], fault: object) -> int:
    """Let a fault with a pattern begin and wait until it has been found; return how often.

    Raises:
        FailedPreconditionError: it was not found in time.
    """
    seconds = stage.seconds + MATCH_SECONDS + MARGIN_SECONDS
    broken = await stage.levers.breaker.break_links(links, fault, seconds)
    ends = stage.clock.boottime() + MATCH_SECONDS
    while stage.clock.boottime() < ends:
        if count := await stage.levers.breaker.match_count(broken):
            return count
        await stage.clock.sleep(0.01)
    raise FailedPreconditionError(f"no commit was seen in {MATCH_SECONDS:.0f} s")


async def tried(stage: Stage, links: Sequence[Link]) -> dict[str, float | str]:
    """Speak through links, all at once; return seconds until an answer, or how there was none."""
    views = {(one.name.part, one.name.dependency): one for one in await _views(stage)}
    found: dict[str, float | str] = {}

    async def one(link: Link) -> None:
        port = views[link.part, link.dependency].port
        found[str(link)] = await answer(stage, port, link.dependency)

    async with asyncio.TaskGroup() as group:
        for link in links:
            group.create_task(one(link), name=f"try {link}")
    return found


async def answer(stage: Stage, port: int, dependency: str, host: str = "127.0.0.1") -> float | str:
    """Return after how many seconds a dependency answers at a port; in words, how it does not."""
    began = stage.clock.boottime()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_HELLO.get(dependency, _HELLO_HTTP))
                said = await reader.read(1)
            finally:
                writer.transport.abort()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return f"silent for {ANSWER_SECONDS} s"
    except OSError as error:
        return f"reset: {error.strerror or error}"
    return round(stage.clock.boottime() - began, 3) if said else "closed without a word"


async def _views(stage: Stage) -> list[LinkView]:
    return await stage.levers.breaker.link_views()
