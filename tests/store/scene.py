"""The engine's writer on a real store: registry, lane, loader and handler, with hooks in between.

What the tests decide is when a call is sent, and what its caller is told; what the call does is
Postgres's own.
"""

# ruff: noqa: ARG002 - stand-ins take what their protocols say, and use none of it

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from engine.handler import Handler
from engine.lane import Lane
from engine.loader import Loader
from engine.run import Run
from engine.shards import Shards
from engine.store import Committed, Group, Renewed, Store, StoredRequest
from engine.store.errors import DamagedRunError
from engine.store.values import Lookup
from engine.term import Term
from odin.core.decide import Decision, OutboxTask
from odin.core.execution import Execution
from odin.core.requests import SignalWorkflow, StartWorkflow
from odin.core.sharding import shard_of
from odin.errors import OdinError, OutcomeUnknownError
from odin.runtime.clock import SystemClock
from odin.runtime.ids import SystemIds

from .support import NOW_US, SHARDS

Wait = Callable[[], Awaitable[None]]


class HookedStore(Store):
    """A store that asks the test before each call that matters."""

    before_commit: Callable[[Group], Awaitable[None]] | None = None
    before_bump: Wait | None = None
    before_acquire: Callable[[int], None] | None = None
    after_acquire: Callable[[int], None] | None = None
    before_release: Callable[[int], None] | None = None

    def __init__(self, dsn: str, incarnation: str, **options: Any) -> None:  # noqa: ANN401 - a store's
        super().__init__(dsn, incarnation, **options)
        self.looked_up: list[str] = []

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        if self.before_commit is not None:
            await self.before_commit(group)
        return await super().commit(group, lane=lane)

    async def bump(self, incarnation: str, terms: Mapping[int, int]) -> dict[int, int]:
        if self.before_bump is not None:
            await self.before_bump()
        return await super().bump(incarnation, terms)

    async def acquire(self, shard_id: int, incarnation: str, *, holds_term: bool) -> int | None:
        if self.before_acquire is not None:
            self.before_acquire(shard_id)
        taken = await super().acquire(shard_id, incarnation, holds_term=holds_term)
        if self.after_acquire is not None:
            self.after_acquire(shard_id)
        return taken

    async def release(
        self, shard_id: int, incarnation: str, range_id: int, *, heir: str | None
    ) -> bool:
        if self.before_release is not None:
            self.before_release(shard_id)
        return await super().release(shard_id, incarnation, range_id, heir=heir)

    async def lookup_many(
        self, lookups: Sequence[Lookup]
    ) -> list[tuple[Execution | DamagedRunError | None, StoredRequest | None]]:
        found = await super().lookup_many(lookups)
        self.looked_up += [one.request_id for one in lookups]
        return found

    async def commit_late(self, group: Group) -> Committed:
        """Run a statement that was sent long ago, on a connection that nobody listens to."""
        async with Store(self._dsn, self.incarnation) as late:
            return await late.commit(group)


class Alive:
    """A lease that lasts until the test says otherwise."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.serves = True

    def now_us(self) -> int:
        return NOW_US

    def may_serve(self) -> bool:
        return self.serves


@dataclass
class Effects:
    """Notes what would leave the engine."""

    written: list[tuple[int, int, int]] = field(default_factory=list)

    def queue_due(self, term: Term, run: Run) -> None:
        """Nothing is due."""

    def committed(self, term: Term, decision: Decision) -> None:
        """Nothing is pushed."""

    def outbox_written(self, term: Term, outbox_id: int, task: OutboxTask) -> None:
        self.written.append((term.shard_id, term.range_id, outbox_id))

    def is_linked(self, worker: str) -> bool:
        return worker == ""

    def term_began(self, term: Term) -> None:
        """Nothing is swept."""

    def term_ended(self, term: Term) -> None:
        """Nothing is forgotten."""


class Held:
    """Keeps the first group that it is asked about until the test lets it go."""

    def __init__(self, error: OdinError | None = None) -> None:
        self.groups: list[Group] = []
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()
        self._error = error

    async def __call__(self, group: Group) -> None:
        self.groups.append(group)
        if len(self.groups) > 1:
            return
        self.arrived.set()
        await self.go.wait()
        if self._error is not None:
            raise self._error


def lost() -> OutcomeUnknownError:
    """What the caller of a statement learns whose connection broke."""
    return OutcomeUnknownError("the connection broke after the statement was sent")


def id_on(shard_id: int, prefix: str = "order") -> str:
    """Return a workflow id of the shard."""
    names = (f"{prefix}-{number}" for number in range(10_000))
    return next(name for name in names if shard_of("default", name, SHARDS) == shard_id)


def start(workflow_id: str, request_id: str) -> StartWorkflow:
    return StartWorkflow(workflow_id=workflow_id, request_id=request_id, workflow_type="order")


def signal(workflow_id: str, request_id: str) -> SignalWorkflow:
    return SignalWorkflow(workflow_id=workflow_id, request_id=request_id, name="go")


@dataclass
class Scene:
    """One node's writer, without leases, links and a broker."""

    store: HookedStore
    lease: Alive
    effects: Effects
    shards: Shards
    lane: Lane
    handler: Handler
    asked: list[asyncio.Task[object]] = field(default_factory=list)

    def ask(self, request: StartWorkflow | SignalWorkflow) -> asyncio.Task[object]:
        """Ask for something; whoever waits for the answer looks into the task."""
        task: asyncio.Task[object] = asyncio.create_task(self.handler.ask(request))
        self.asked.append(task)
        return task

    async def decided(self, request_id: str) -> None:
        """Return once a request has been looked up and all that follows at once has followed."""
        async with asyncio.timeout(5):
            while request_id not in self.store.looked_up:
                await asyncio.sleep(0.002)
        await turns()


async def turns() -> None:
    """Let everything that can go on without the database or the clock go on."""
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def hooked_store(dsn: str, node_id: str = "node-a") -> AsyncIterator[HookedStore]:
    """The store of a node that lives."""
    async with HookedStore(dsn, SystemIds().incarnation()) as store:
        await store.open_cluster(SHARDS, "sharded")
        assert isinstance(await store.register_node(store.incarnation, node_id, "a:1"), Renewed)
        yield store


def writer(store: HookedStore) -> tuple[Alive, Effects, Shards, Lane, Loader]:
    """Return a node's registry with its one lane and its loader; none of them runs yet."""
    lease, effects = Alive(store.incarnation), Effects()
    shards = Shards(lease, effects, SystemClock(), SystemIds(), SHARDS)
    lane = Lane(store, shards, store.incarnation)
    shards.use_lanes([lane])
    return lease, effects, shards, lane, Loader(store)


@asynccontextmanager
async def scene(dsn: str) -> AsyncIterator[Scene]:
    """A node that owns every shard, each under its first range."""
    async with hooked_store(dsn) as store, asyncio.TaskGroup() as group:
        lease, effects, shards, lane, loader = writer(store)
        stop = asyncio.Event()
        group.create_task(lane.run(stop))
        group.create_task(loader.run(stop))
        for shard_id in range(SHARDS):
            range_id = await store.acquire(shard_id, store.incarnation, holds_term=False)
            assert range_id is not None
            shards.begin(shard_id, range_id)
        found = Scene(store, lease, effects, shards, lane, Handler(shards, loader))
        try:
            yield found
        finally:
            store.before_commit = store.before_bump = None
            for task in found.asked:
                task.cancel()
                with suppress(asyncio.CancelledError, OdinError):
                    await task
            stop.set()
