"""Which shards this node takes and which it hands over.

A standing scan, once a second, woken when a lease may have ended.

What the scan reads is a view and may be stale; every statement that takes, releases or bumps a
shard carries its whole condition again. A shard is taken in a transaction of its own, and only
after that has committed is anything of the shard read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from odin.core.ownership import (
    HandOver,
    Limits,
    Movement,
    NodeState,
    earliest_lease_until_us,
    since,
    takeable,
    to_hand_over,
    to_hand_over_at_once,
    to_take,
)
from odin.core.wire import NodeEntry, ShardEntry
from odin.errors import OdinError
from odin.runtime.clock import Clock

from .membership import Membership
from .shards import Shards
from .store.values import ClusterView, NodeRow, ShardRow
from .ticket import ShardLostError

log = logging.getLogger(__name__)

SCAN_SECONDS = 1.0
ACQUIRE_AT_ONCE = 8
RELEASE_SECONDS_MAX = 2.0


class OwnershipStore(Protocol):
    """The store as ownership sees it."""

    async def cluster_view(self) -> ClusterView: ...  # noqa: D102 - see engine.store.shards
    async def mark_dead_expired(self) -> list[str]: ...  # noqa: D102 - the same
    async def acquire(self, shard_id: int, incarnation: str, *, holds_term: bool) -> int | None: ...  # noqa: D102 - the same
    async def release(  # noqa: D102 - the same
        self, shard_id: int, incarnation: str, range_id: int, *, heir: str | None
    ) -> bool: ...
    async def bump(self, incarnation: str, terms: dict[int, int]) -> dict[int, int]: ...  # noqa: D102 - the same
    async def set_draining(self, incarnation: str) -> bool: ...  # noqa: D102 - the same
    async def set_dead(self, incarnation: str) -> bool: ...  # noqa: D102 - the same
    async def forget_nodes(self) -> list[str]: ...  # noqa: D102 - the same


class Ownership:
    """Takes and hands over shards for one incarnation."""

    def __init__(
        self, store: OwnershipStore, membership: Membership, shards: Shards, clock: Clock
    ) -> None:
        self._store = store
        self._membership = membership
        self._shards = shards
        self._clock = clock
        self._limits = Limits()
        self._takeable_since: dict[int, float] = {}
        self._ready_since: dict[str, float] = {}
        self._moved_at: dict[int, float] = {}
        self._moving: set[int] = set()
        self._not_acquired: set[int] = set()
        self._wake = asyncio.Event()
        self._stopped = False
        self.nodes: dict[str, NodeRow] = {}
        self.on_nodes: list[Callable[[], None]] = []
        self.tell_released: Callable[[str, int, int], None] = lambda _heir, _shard, _range: None

    def entries(self) -> tuple[NodeEntry, ...]:
        """Return the live engines, this one included."""
        now_us = self._membership.now_us()
        return tuple(
            NodeEntry(node.incarnation, node.node_id, node.address)
            for node in self.nodes.values()
            if node.state is not NodeState.DEAD and not node.is_expired(now_us)
        )

    def address_of(self, incarnation: str) -> str:
        """Return where an engine listens, "" if it is not known."""
        node = self.nodes.get(incarnation)
        return "" if node is None else node.address

    def wake(self) -> None:
        """Look now: something has changed."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Scan until told to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop), name="ownership stop")
            rounds, fails = 0, False
            while not stop.is_set():
                try:
                    await self._scan()
                    if rounds % 600 == 0:
                        await self._store.forget_nodes()
                    fails = False
                except OdinError as error:
                    level = logging.DEBUG if fails else logging.WARNING
                    log.log(level, "ownership scan failed", extra={"detail": str(error)})
                    fails = True
                rounds += 1
                await self._until_next()

    async def drain(self) -> None:
        """Hand everything over at once and leave.

        What is not released within 2 s is left to our death.
        """
        self._stopped = True
        try:
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                await self._store.set_draining(self._membership.incarnation)
                hand_overs = to_hand_over_at_once(
                    list(self._shards.terms), self._ready(), self._membership.incarnation
                )
                await self._release_all(hand_overs)
        except (TimeoutError, OdinError) as error:
            log.warning("not everything was handed over", extra={"detail": str(error)})
        self._shards.leave("its owner stops")
        try:
            async with asyncio.timeout(1.0):
                await self._store.set_dead(self._membership.incarnation)
        except (TimeoutError, OdinError) as error:
            log.warning("the node row stays until its lease ends", extra={"detail": str(error)})

    # --- one scan --------------------------------------------------------------------------------

    async def _scan(self) -> None:
        view = await self._store.cluster_view()
        if any(
            node.state is not NodeState.DEAD and node.is_expired(view.db_now_us)
            for node in view.nodes
        ):
            await self._store.mark_dead_expired()
            view = await self._store.cluster_view()
        self._learn(view)
        await self._take(view)
        await self._hand_over()

    def _learn(self, view: ClusterView) -> None:
        before = {one.incarnation for one in self.entries()} if self.nodes else set()
        self.nodes = {node.incarnation: node for node in view.nodes}
        if {one.incarnation for one in self.entries()} != before:
            for told in self.on_nodes:
                told()
        known, terms, news = self._shards.entry, self._shards.terms, list[ShardEntry]()
        for shard in view.shards:
            entry, owner = known(shard.shard_id), shard.owner or ""
            if entry.range_id != shard.range_id or entry.incarnation != owner:
                news.append(ShardEntry(shard.shard_id, owner, shard.range_id))
        self._shards.learn(news)
        for shard in view.shards:
            term = terms.get(shard.shard_id)
            if term is not None and shard.range_id > term.range_id:
                self._shards.drop(
                    shard.shard_id, ShardLostError(f"shard {shard.shard_id} has another owner")
                )

    async def _take(self, view: ClusterView) -> None:
        me = self._membership.incarnation
        own = self.nodes.get(me)
        if own is None or self._stopped:
            return
        now, now_us = self._clock.boottime(), view.db_now_us
        rows: list[ShardRow] = [
            shard for shard in view.shards if shard.shard_id not in self._moving
        ]
        candidates = takeable(rows, dict(self.nodes), me, now_us, self._shards.terms)
        self._takeable_since = since(
            self._takeable_since, (shard.shard_id for shard in candidates), now
        )
        live = [node.node_id for node in self.nodes.values() if node.may_own(now_us)]
        wanted = to_take(candidates, self._takeable_since, live, own, now, self._limits)
        for start in range(0, len(wanted), ACQUIRE_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for shard_id in wanted[start : start + ACQUIRE_AT_ONCE]:
                    group.create_task(self._acquire(shard_id), name=f"acquire {shard_id}")

    async def _acquire(self, shard_id: int) -> None:
        holds_term = shard_id in self._shards.terms
        try:
            range_id = await self._store.acquire(
                shard_id, self._membership.incarnation, holds_term=holds_term
            )
        except OdinError as error:
            level = logging.DEBUG if shard_id in self._not_acquired else logging.WARNING
            log.log(level, "not acquired", extra={"shard": shard_id, "detail": str(error)})
            self._not_acquired.add(shard_id)
            return
        self._not_acquired.discard(shard_id)
        if range_id is not None and not self._stopped:
            self._shards.begin(shard_id, range_id)

    # --- hand-over -------------------------------------------------------------------------------

    def _ready(self) -> dict[str, NodeRow]:
        now_us = self._membership.now_us()
        return {node.incarnation: node for node in self.nodes.values() if node.may_own(now_us)}

    async def _hand_over(self) -> None:
        if self._stopped:
            return
        now = self._clock.boottime()
        ready = self._ready()
        me = self._membership.incarnation
        self._ready_since = since(self._ready_since, (one for one in ready if one != me), now)
        movement = Movement(self._ready_since, self._moved_at, len(self._moving))
        own = [shard_id for shard_id in self._shards.terms if shard_id not in self._moving]
        await self._release_all(to_hand_over(own, ready, me, movement, now, self._limits))

    async def _release_all(self, hand_overs: Iterable[HandOver]) -> None:
        async with asyncio.TaskGroup() as group:
            for hand_over in hand_overs:
                group.create_task(self._release(hand_over), name=f"release {hand_over.shard_id}")

    async def _release(self, hand_over: HandOver) -> None:
        """Drain the shard, then release it.

        From the moment the release is sent it answers nothing.
        """
        shard_id = hand_over.shard_id
        term = self._shards.terms.get(shard_id)
        if term is None or term.is_over:
            return
        self._moving.add(shard_id)
        self._moved_at[shard_id] = self._clock.boottime()
        try:
            term.is_draining = True
            await term.drained()
            if self._shards.terms.get(shard_id) is not term:
                return  # lost meanwhile
            self._shards.drop(shard_id, ShardLostError(f"shard {shard_id} is handed over"))
            released = await self._store.release(
                shard_id, self._membership.incarnation, term.range_id, heir=hand_over.heir
            )
            if released:
                self._shards.learn([ShardEntry(shard_id, "", term.range_id)])
                if hand_over.heir is not None:
                    self.tell_released(hand_over.heir, shard_id, term.range_id)
        except OdinError as error:
            await self._bump_unknown(shard_id, term.range_id, error)
        finally:
            self._moving.discard(shard_id)

    async def _bump_unknown(self, shard_id: int, range_id: int, error: OdinError) -> None:
        """A release of unknown outcome is bumped like any other write.

        If it went through, nothing happens.
        """
        log.warning("release in doubt", extra={"shard": shard_id, "detail": str(error)})
        try:
            ranges = await self._store.bump(self._membership.incarnation, {shard_id: range_id})
        except OdinError:
            return  # the scan takes it again: the row names this incarnation, which holds no term
        self._shards.shards_bumped(ranges)

    # --- waiting ---------------------------------------------------------------------------------

    async def _until_next(self) -> None:
        wait = SCAN_SECONDS
        lease_until_us = earliest_lease_until_us(self.nodes.values(), self._membership.incarnation)
        if lease_until_us is not None:
            ahead = (lease_until_us - self._membership.now_us()) / 1_000_000 + 0.02
            if 0.0 < ahead < wait:
                wait = ahead
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()
