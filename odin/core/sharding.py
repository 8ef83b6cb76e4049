"""Which shard a workflow lives in, and which node should own a shard.

A shard is a fixed slice of all workflow ids; its number must be the same for ever and everywhere,
so it comes from a cryptographic hash and never from Python's `hash`. Which *node* should own it is
rendezvous hashing: each node gets a score for the shard, the highest wins, and when a node comes or
goes only its own shards move. The answer is advice: the owner is whoever the shard's row names.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def shard_of(namespace: str, workflow_id: str, shard_count: int) -> int:
    """Return the shard of a workflow id: blake2b(namespace, 0, workflow_id) mod `shard_count`.

    Args:
        namespace: The namespace; holds no NUL, as no id does.
        workflow_id: The workflow id.
        shard_count: The cluster's number of shards, fixed when it was created.

    Raises:
        ValueError: `shard_count` is below 1.
    """
    if shard_count < 1:
        raise ValueError(f"a cluster has at least one shard, got {shard_count}")
    return _hash(f"{namespace}\0{workflow_id}") % shard_count


def owner_of(shard_id: int, nodes: Collection[str]) -> str | None:
    """Return the node that should own `shard_id`, or None if there is no node.

    Args:
        shard_id: The shard.
        nodes: Names of the live nodes, in any order, the same everywhere.
    """
    return max(nodes, key=lambda node: (score(shard_id, node), node), default=None)


def preferred(shard_ids: Iterable[int], nodes: Collection[str]) -> dict[int, str]:
    """Return the node that should own each of `shard_ids`; empty if there is no node."""
    if not nodes:
        return {}
    return {
        shard_id: max(nodes, key=lambda node: (score(shard_id, node), node))
        for shard_id in shard_ids
    }


@lru_cache(maxsize=65_536)
def score(shard_id: int, node: str) -> int:
    """Return the node's score for the shard; the highest of all nodes wins."""
    return _hash(f"{node}\0{shard_id}")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
