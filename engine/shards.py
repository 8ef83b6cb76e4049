"""The shards of this node: its terms, and what it knows of everybody else's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from odin.core.decide import Decision, OutboxTask
from odin.core.history_limits import HISTORY_LIMITS
from odin.core.sharding import shard_of
from odin.core.wire import ShardEntry
from odin.errors import NotOwnerError, OdinError
from odin.runtime.clock import Clock
from odin.runtime.ids import Ids

from .run import Run
from .term import Term
from .ticket import ShardLostError

if TYPE_CHECKING:
    from .lane import Lane

log = logging.getLogger(__name__)

RANGES_AHEAD_MAX: Final = 10_000_000


class LeaseView(Protocol):
    """The node's lease, as its shards see it."""

    incarnation: str

    def now_us(self) -> int:
        """Return a lower bound of the cluster's time."""
        ...

    def may_serve(self) -> bool:
        """Return whether an answer from memory may leave now."""
        ...


class Effects(Protocol):
    """What happens outside of memory because something was decided or has committed."""

    def queue_due(self, term: Term, run: Run) -> None:
        """The run's due instant may have moved."""
        ...

    def committed(self, term: Term, decision: Decision) -> None:
        """The decision has committed: push its workflow task, stop attempts."""
        ...

    def outbox_written(self, term: Term, outbox_id: int, task: OutboxTask) -> None:
        """The task has committed under this id: publish it."""
        ...

    def is_linked(self, worker: str) -> bool:
        """Return whether the worker's link is open."""
        ...

    def term_began(self, term: Term) -> None:
        """A term has begun: sweep, then bring back what is nowhere."""
        ...

    def term_ended(self, term: Term) -> None:
        """A term is over."""
        ...


class Shards:
    """The registry of this node's terms and the map of all shards."""

    def __init__(
        self, lease: LeaseView, effects: Effects, clock: Clock, ids: Ids, shard_count: int
    ) -> None:
        self._lease = lease
        self._effects = effects
        self._lanes: list[Lane] = []
        self.clock = clock
        self.ids = ids
        self.shard_count = shard_count
        self.history_limits = HISTORY_LIMITS
        self.terms: dict[int, Term] = {}
        self._is_leaving = False
        self.map: dict[int, ShardEntry] = {}
        self.on_map: list[Callable[[tuple[ShardEntry, ...]], None]] = []

    def use_lanes(self, lanes: list[Lane]) -> None:
        """Set the lanes; a shard is always written by the same one."""
        self._lanes = lanes

    @property
    def lanes(self) -> Sequence[Lane]:
        """All lanes; a shard is written by number `shard_id % len(lanes)`."""
        return self._lanes

    def lane_of(self, shard_id: int) -> Lane:
        """Return the lane that writes the shard."""
        return self._lanes[shard_id % len(self._lanes)]

    def flush(self) -> None:
        """Commit what has gathered, if it is only bookkeeping too."""
        for lane in self._lanes:
            lane.flush()

    def shard_of(self, namespace: str, workflow_id: str) -> int:
        """Return the shard of a workflow id."""
        return shard_of(namespace, workflow_id, self.shard_count)

    def serving(self, shard_id: int) -> Term:
        """Return the term under which this node decides for the shard.

        Raises:
            NotOwnerError: There is none; details name the owner, as far as it is known.
        """
        term = self.terms.get(shard_id)
        if term is None or not term.is_serving:
            entry = self.entry(shard_id)
            raise NotOwnerError(
                f"shard {shard_id} is not served here",
                details={"owner": entry.incarnation, "range_id": entry.range_id},
            )
        return term

    def check_lease(self) -> None:
        """Raise unless an answer from memory may leave now.

        Raises:
            NotOwnerError: The lease may be over by the database's clock.
        """
        if not self._lease.may_serve():
            raise NotOwnerError("this node's lease is in doubt; ask again")

    def check_writes(self, shard_id: int) -> None:
        """Raise if what is decided for the shard now could not be written.

        Raises:
            StoreUnavailableError: Its lane waits for the database; nothing was changed.
        """
        self.lane_of(shard_id).check()

    def now_us(self) -> int:
        """Return a lower bound of the cluster's time."""
        return self._lease.now_us()

    def is_linked(self, worker: str) -> bool:
        """Return whether the worker's link is open."""
        return self._effects.is_linked(worker)

    def queue_due(self, term: Term, run: Run) -> None:
        """The run's due instant may have moved."""
        self._effects.queue_due(term, run)

    def committed(self, term: Term, decision: Decision) -> None:
        """The decision has committed."""
        self._effects.committed(term, decision)

    def entry(self, shard_id: int) -> ShardEntry:
        """Return what is known of the shard's owner."""
        return self.map.get(shard_id) or ShardEntry(shard_id, "", 0)

    def begin(self, shard_id: int, range_id: int) -> Term:
        """Begin a term: the acquisition or the bump has committed.

        An acquisition and a bump of one shard may be answered in the other order: the higher range
        counts.
        """
        old = self.terms.get(shard_id)
        if old is not None and old.range_id >= range_id:
            return old
        if old is not None:
            self._end(old, ShardLostError(f"shard {shard_id} has a new range"))
        term = Term(self, self.lane_of(shard_id), shard_id, range_id, self.now_us())
        self.terms[shard_id] = term
        self.learn([ShardEntry(shard_id, self._lease.incarnation, range_id)])
        self._effects.term_began(term)
        return term

    def drop(self, shard_id: int, error: OdinError) -> None:
        """End the shard's term without a successor: released, or lost."""
        term = self.terms.pop(shard_id, None)
        if term is not None:
            self._end(term, error)

    def learn(self, entries: Iterable[ShardEntry]) -> None:
        """Take news of ownership; of two entries for a shard the higher range_id is right.

        An entry for a shard that the cluster does not have, or with a range that nobody can have
        reached, is no news: believed, it would outlive every true one.
        """
        news = tuple(
            entry
            for entry in entries
            if entry.shard_id < self.shard_count
            and entry.range_id <= self.entry(entry.shard_id).range_id + RANGES_AHEAD_MAX
            if entry.range_id > self.entry(entry.shard_id).range_id
            or (
                entry.range_id == self.entry(entry.shard_id).range_id
                and entry.incarnation != self.entry(entry.shard_id).incarnation
                and not (entry.shard_id in self.terms and entry.incarnation == "")
            )
        )
        if not news:
            return
        for entry in news:
            self.map[entry.shard_id] = entry
        for told in self.on_map:
            told(news)

    # What the lanes tell.

    def outbox_written(self, shard_id: int, outbox_id: int, task: OutboxTask) -> None:
        """A task has committed under this outbox id."""
        term = self.terms.get(shard_id)
        if term is not None:
            self._effects.outbox_written(term, outbox_id, task)

    def terms_lost(self, terms: Mapping[int, int], errors: Mapping[int, OdinError]) -> None:
        """These terms (shard to range) are over; a newer term of the same shard is not."""
        for shard_id, error in errors.items():
            term = self.terms.get(shard_id)
            if term is not None and term.range_id == terms[shard_id]:
                self.drop(shard_id, error)

    def shards_bumped(self, ranges: Mapping[int, int]) -> None:
        """These shards are ours under a new range; one that leaves answers for them no more."""
        if self._is_leaving:
            return
        for shard_id, range_id in sorted(ranges.items()):
            self.begin(shard_id, range_id)

    def leave(self, why: str) -> None:
        """End all terms, and begin none any more, whatever is still answered.

        Once our row says that we are dead others take our shards at once, without waiting for the
        lease: a term that began after that would answer beside theirs.

        Args:
            why: What becomes of the owner, for who asks.
        """
        self._is_leaving = True
        for shard_id in list(self.terms):
            self.drop(shard_id, ShardLostError(f"shard {shard_id}: {why}"))

    def _end(self, term: Term, error: OdinError) -> None:
        term.end(error)
        self.lane_of(term.shard_id).drop({term.shard_id: term.range_id}, {term.shard_id: error})
        self._effects.term_ended(term)
