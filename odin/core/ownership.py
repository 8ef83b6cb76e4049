"""Which shards a node should try to take, and which it should hand over. Pure.

What stands in the rows decides; these functions only say what is worth a try. The statement that
takes a shard carries the whole condition again, so a stale view costs an attempt and never a shard.

Times in seconds are the node's own boottime, instants in microseconds (`_us`) are the cluster's.
A node is known by its incarnation; hashing goes by `node_id`, so that a restarted node gets the
shards of its predecessor back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, TypeVar

from odin.core.sharding import preferred

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

LEASE_AHEAD_US_MAX = 20_000_000
HEIR_GRACE_US = 3_000_000

_Key = TypeVar("_Key")


class NodeState(Enum):
    """What a node's row says of it."""

    ALIVE = "alive"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's row as last read."""

    incarnation: str
    node_id: str
    state: NodeState
    lease_until_us: int

    def is_expired(self, now_us: int) -> bool:
        """Return whether the lease is over; one far ahead was made by a clock gone wrong."""
        return not now_us < self.lease_until_us <= now_us + LEASE_AHEAD_US_MAX

    def may_own(self, now_us: int) -> bool:
        """Return whether hashing counts this node: alive, unexpired, not draining."""
        return self.state is NodeState.ALIVE and not self.is_expired(now_us)


@dataclass(frozen=True, slots=True)
class ShardView:
    """A shard's row as last read."""

    shard_id: int
    owner: str | None
    heir: str | None = None
    released_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """A shard to release, and the incarnation that it is meant for (None: whoever takes it)."""

    shard_id: int
    heir: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """How gently shards move while nobody is in a hurry, times in seconds."""

    heir_ready_for: float = 10.0
    hand_overs_at_once: int = 4
    hand_over_again_after: float = 30.0
    take_foreign_after: float = 3.0


@dataclass(frozen=True, slots=True)
class Movement:
    """What a node remembers of shards on the move.

    Attributes:
        ready_since: Since when each other incarnation has been seen ready, as `since` keeps it.
        moved_at: When each shard last came here or was last tried to be handed over.
        in_progress_count: Hand-overs that have begun and not ended.
    """

    ready_since: Mapping[str, float]
    moved_at: Mapping[int, float]
    in_progress_count: int = 0


def since(previous: Mapping[_Key, float], present: Iterable[_Key], now: float) -> dict[_Key, float]:
    """Return since when each of `present` has been so without a break, given the last answer."""
    return {key: previous.get(key, now) for key in present}


def is_takeable(
    shard: ShardView, nodes: Mapping[str, NodeView], me: str, now_us: int, *, holds_term: bool
) -> bool:
    """Return whether the shard may be taken by `me`.

    A row that is missing among `nodes` is not a dead node: only the mark in a row counts.

    Args:
        shard: The shard's row.
        nodes: Incarnation to row, this node's own included.
        me: This node's incarnation.
        now_us: The cluster's time.
        holds_term: Whether this node has a term object for the shard.
    """
    own = nodes.get(me)
    if own is None or not own.may_own(now_us):
        return False
    if shard.owner == me:
        return not holds_term  # the reply to an earlier acquisition or bump was lost
    if shard.owner is not None:
        return _is_dead(shard.owner, nodes)
    if shard.heir is None or shard.heir == me or _is_dead(shard.heir, nodes):
        return True
    return shard.released_at_us is None or now_us - shard.released_at_us >= HEIR_GRACE_US


def takeable(
    shards: Iterable[ShardView],
    nodes: Mapping[str, NodeView],
    me: str,
    now_us: int,
    terms: Collection[int],
) -> list[ShardView]:
    """Return the shards that `me`, which holds a term for each of `terms`, may take."""
    return [
        shard
        for shard in shards
        if is_takeable(shard, nodes, me, now_us, holds_term=shard.shard_id in terms)
    ]


def to_take(
    candidates: Iterable[ShardView],
    takeable_since: Mapping[int, float],
    live_node_ids: Collection[str],
    me: NodeView,
    now: float,
    limits: Limits = Limits(),
) -> list[int]:
    """Return the shards of `candidates` that `me` should try to take now, in id order.

    Those that hashing gives it, that name it as heir or that already name it as owner at once;
    others only after whoever is meant to take them has had `limits.take_foreign_after`.

    Args:
        candidates: What `takeable` returned.
        takeable_since: Since when each candidate has been takeable, as `since` keeps it.
        live_node_ids: The nodes that may own shards, `me` included.
        me: This node's row.
        now: Boottime in seconds.
        limits: The pace.
    """
    shards = sorted(candidates, key=lambda shard: shard.shard_id)
    wanted = preferred((shard.shard_id for shard in shards), live_node_ids)
    return [
        shard.shard_id
        for shard in shards
        if wanted.get(shard.shard_id) == me.node_id
        or me.incarnation in (shard.heir, shard.owner)
        or now - takeable_since.get(shard.shard_id, now) >= limits.take_foreign_after
    ]


def to_hand_over(
    own_shards: Iterable[int],
    ready: Mapping[str, NodeView],
    me: str,
    movement: Movement,
    now: float,
    limits: Limits = Limits(),
) -> list[HandOver]:
    """Return the shards to hand over now, in no hurry.

    Args:
        own_shards: Shards that this node owns and is not handing over already.
        ready: Incarnation to row of the nodes that may own shards, this node included.
        me: This node's incarnation.
        movement: What has moved of late.
        now: Boottime in seconds.
        limits: The pace.
    """
    heirs = {node.node_id: node.incarnation for node in ready.values()}
    due = [
        HandOver(shard_id, heirs[node_id])
        for shard_id, node_id in preferred(sorted(own_shards), heirs).items()
        if heirs[node_id] != me
        and now - movement.ready_since.get(heirs[node_id], now) >= limits.heir_ready_for
        and now - movement.moved_at.get(shard_id, -inf) >= limits.hand_over_again_after
    ]
    return due[: max(0, limits.hand_overs_at_once - movement.in_progress_count)]


def to_hand_over_at_once(
    own_shards: Iterable[int], ready: Mapping[str, NodeView], me: str
) -> list[HandOver]:
    """Return every shard with the best ready node for it: the hand-over of a node that stops.

    Without a ready node the shards are released to whoever takes them first.
    """
    heirs = {node.node_id: node.incarnation for node in ready.values() if node.incarnation != me}
    shard_ids = sorted(own_shards)
    wanted = preferred(shard_ids, heirs)
    return [
        HandOver(shard_id, heirs[wanted[shard_id]] if shard_id in wanted else None)
        for shard_id in shard_ids
    ]


def earliest_lease_until_us(nodes: Iterable[NodeView], me: str) -> int | None:
    """Return the instant at which the next lease of another node may end; None if there is none."""
    return min(
        (
            node.lease_until_us
            for node in nodes
            if node.state is not NodeState.DEAD and node.incarnation != me
        ),
        default=None,
    )


def _is_dead(incarnation: str, nodes: Mapping[str, NodeView]) -> bool:
    node = nodes.get(incarnation)
    return node is not None and node.state is NodeState.DEAD
