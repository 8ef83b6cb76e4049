"""One incarnation of an engine.

Every part, wired; made at the start of its lease and gone with it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from odin.core import wire
from odin.core.decide import Decision, OutboxTask
from odin.runtime.clock import Clock, pause
from odin.runtime.ids import Ids

from .admission import Admission
from .due import DueLoop
from .handler import Handler
from .hub import Hub
from .lane import Lane
from .loader import Loader
from .membership import Membership
from .outbox import MakeRow, Outbox
from .ownership import Ownership
from .peers import Peers
from .replies import Replies
from .retention import Retention
from .router import Router
from .run import Run
from .sessions import Sessions
from .shards import Shards
from .store.store import Store
from .takeover import take_over
from .term import Term
from .work import Work

if TYPE_CHECKING:
    from odin.runtime.service import Loop

log = logging.getLogger(__name__)

EVICT_EVERY_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 60.0
CLOSED_SECONDS: Final = 30.0
REQUESTS_KEPT_SECONDS: Final = 60.0


class Sweeps(Protocol):
    """The relay's sweeper, as the node sees it."""

    def term_began(self, shard_id: int) -> None:
        """Read and publish the rows that the term inherits."""
        ...

    def term_over(self, shard_id: int) -> None:
        """Sweep the shard no more."""
        ...


class RelayNumbers(Protocol):
    """The relay, as metrics and admission see it."""

    @property
    def depth(self) -> int:
        """Rows that are not confirmed."""
        ...

    @property
    def oldest_age_ms(self) -> int:
        """How long the oldest of them waits."""
        ...

    @property
    def message_count(self) -> int:
        """Messages sent so far."""
        ...


@dataclass(slots=True)
class Counts:
    """What has happened since this incarnation began."""

    started: int = 0
    closed: int = 0
    ended_terms: int = 0


class Node:
    """All parts of one incarnation."""

    def __init__(  # noqa: PLR0913 - the composition hands in everything a simulation replaces
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        membership: Membership,
        shard_count: int,
        make_row: MakeRow,
        keep_us: int,
    ) -> None:
        self.store = store
        self.clock = clock
        self.membership = membership
        self.work = Work()
        self.sessions = Sessions()
        self.loader = Loader(store)
        self.shards = Shards(membership, self, clock, ids, shard_count)
        self.lanes = [
            Lane(store, self.shards, membership.incarnation, number)
            for number in range(store.sizes.lanes)
        ]
        self.shards.use_lanes(self.lanes)
        self.due = DueLoop(self.shards, self.loader, store)
        self.outbox = Outbox(self.shards, store, make_row)
        self.retention = Retention(self.shards, store, keep_us)
        self.ownership = Ownership(store, membership, self.shards, clock)
        self.handler = Handler(self.shards, self.loader)
        replies = Replies(self.shards, self.loader, self.work)
        self.hub = Hub(self.shards, self.loader, self.sessions, replies, _Cluster(self))
        self.peers = Peers(
            membership, self.work, self.handler.ask, self.shards.learn, self._own_entries
        )
        self.router = Router(
            self.shards,
            self.handler,
            self.peers,
            clock,
            self.ownership.address_of,
            store.condition.refusal,
        )
        self.sweeper: Sweeps | None = None
        self.relay: RelayNumbers | None = None
        self.admission: Admission | None = None
        self.counts = Counts()
        self.shards.on_map.append(self.peers.tell_map)
        self.ownership.on_nodes.append(self.hub.tell_nodes)
        self.ownership.tell_released = self._tell_released
        self.peers.on_released = lambda _shard: self.ownership.wake()

    def loops(self) -> dict[str, Loop]:
        """Return the loops that make the node live, in no order."""
        loops: dict[str, Loop] = {
            "membership": self.membership.run,
            "ownership": self.ownership.run,
            "work": self.work.run,
            "loader": self.loader.run,
            "due": self.due.run,
            "flush": self.outbox.flush,
            "evict": self._evict,
            "retention": self.retention.run,
        }
        for number, lane in enumerate(self.lanes):
            loops[f"lane {number}"] = lane.run
        return loops

    # --- effects: what the shards tell ------------------------------------------------------------

    def queue_due(self, term: Term, run: Run) -> None:
        """The run's due instant may have moved."""
        self.due.queue(term, run)

    def committed(self, term: Term, decision: Decision) -> None:
        """A decision has committed."""
        self.counts.started += decision.is_new
        self.counts.closed += not decision.execution.is_open
        self.hub.committed(term, decision)

    def outbox_written(self, term: Term, outbox_id: int, task: OutboxTask) -> None:
        """A task has committed under this outbox id."""
        self.outbox.written(term, outbox_id, task)

    def is_linked(self, worker: str) -> bool:
        """Return whether the worker's link is open."""
        return self.sessions.is_linked(worker)

    def term_began(self, term: Term) -> None:
        """Sweep, look for what is due, bring back what is nowhere."""
        log.info("term began", extra={"shard": term.shard_id, "range_id": term.range_id})
        if self.sweeper is not None:
            self.sweeper.term_began(term.shard_id)
        self.due.term_began(term)
        self.work.start(take_over(term, self.store, self.loader, self.clock))

    def term_ended(self, term: Term) -> None:
        """Forget what the relay holds of it."""
        self.counts.ended_terms += 1
        log.info("term ended", extra={"shard": term.shard_id, "range_id": term.range_id})
        if self.outbox.publisher is not None:
            self.outbox.publisher.term_over(term.shard_id, term.range_id)
        if self.sweeper is not None:
            self.sweeper.term_over(term.shard_id)

    # --- the rest ---------------------------------------------------------------------------------

    def _own_entries(self) -> tuple[wire.ShardEntry, ...]:
        return tuple(self.shards.entry(shard_id) for shard_id in self.shards.terms)

    def _tell_released(self, heir: str, shard_id: int, range_id: int) -> None:
        self.peers.tell_released(self.ownership.address_of(heir), shard_id, range_id)

    async def _evict(self, stop: asyncio.Event) -> None:
        """Forget runs that nobody has used for a while and whose newest group has committed."""
        while not await pause(self.clock, stop, EVICT_EVERY_SECONDS):
            now = self.clock.boottime()
            for term in list(self.shards.terms.values()):
                if term.is_settled:
                    _evict_idle(term, now)
                await asyncio.sleep(0)


class _Cluster:
    """What the hub tells workers of the cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.incarnation = node.membership.incarnation
        self.node_id = node.membership.node_id

    def entries(self) -> tuple[wire.NodeEntry, ...]:
        """Return all live engines."""
        return self._node.ownership.entries()


def _evict_idle(term: Term, now: float) -> None:
    for run in list(term.runs.values()):
        patience = IDLE_SECONDS if run.execution.is_open else CLOSED_SECONDS
        if now - run.touched_at > patience and run.execution.run_id not in term.closings:
            term.remove(run)
    for key, (_, at) in list(term.requests.items()):
        if now - at > REQUESTS_KEPT_SECONDS:
            del term.requests[key]
