"""The engines as a worker sees them: their links, who owns which shard, and what they must be told.

The map of shards is pieced together from what every engine says of it; of two entries for one shard
the higher range_id is right. When a shard that this worker holds something of moves, its new owner
is told what is held (the inventory), and then everything unanswered is said again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from odin.core.wire import (
    LINK_VERSION,
    Hello,
    Inventory,
    NodeEntry,
    NodeList,
    ShardEntry,
    ShardMap,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odin.runtime.links import Link, Message

log = logging.getLogger(__name__)


class Holder(Protocol):
    """Who holds what the engines must be told of."""

    def inventory(self, shard_ids: set[int] | None) -> Inventory:
        """Return what is held of these shards, or of all."""
        ...

    def shards_moved(self, shard_ids: set[int]) -> None:
        """These shards have an owner with a link: say what is unanswered."""
        ...

    def engine_message(self, link: Link, message: Message) -> None:
        """A message that is not about links and shards."""
        ...


class _Peer:
    """One link and whom it has turned out to lead to."""

    __slots__ = ("address", "incarnation", "link")

    def __init__(self, link: Link, address: str) -> None:
        self.link = link
        self.address = address
        self.incarnation = ""


class Engines:
    """The links of one worker.

    Args:
        hello: Said first on every connection.
        seeds: Addresses to begin with, and to go back to when no engine is linked.
        route: Translates an engine's advertised address into the one to dial.
        holder: Who holds what the engines must be told of.
    """

    def __init__(
        self,
        hello: Hello,
        seeds: Sequence[str],
        route: Callable[[str], str],
        holder: Holder,
    ) -> None:
        self._hello = hello
        self._seeds = tuple(dict.fromkeys(route(seed.rstrip("/")) for seed in seeds))
        self._want: Callable[[Iterable[str]], None] = _nobody
        self._route = route
        self._holder = holder
        self._map: dict[int, ShardEntry] = {}
        self._peers: dict[Link, _Peer] = {}
        self._by_incarnation: dict[str, Link] = {}
        self._nodes: tuple[NodeEntry, ...] = ()

    @property
    def linked(self) -> int:
        """Engines that have said welcome."""
        return len(self._by_incarnation)

    @property
    def links(self) -> list[Link]:
        """The links to engines that have said welcome."""
        return list(self._by_incarnation.values())

    def begin(self, want: Callable[[Iterable[str]], None]) -> None:
        """Start with the seeds; `want` is told which addresses to keep links to."""
        self._want = want
        want(self._addresses())

    def owner(self, shard_id: int) -> Link | None:
        """Return the link to the shard's owner, or None when it has no owner or no link."""
        entry = self._map.get(shard_id)
        return None if entry is None else self._by_incarnation.get(entry.incarnation)

    def learn(self, entry: ShardEntry) -> None:
        """Take in what an engine says of a shard."""
        self._learn((entry,))

    # The keeper's calls.

    def link_up(self, link: Link, address: str) -> None:
        """Introduce this worker."""
        self._peers[link] = _Peer(link, address)
        link.send(self._hello)

    def link_message(self, link: Link, message: Message) -> None:
        """Take what is about links and shards, hand on the rest."""
        kind = type(message)
        if kind is Welcome:
            self._welcome(link, message)
        elif kind is ShardMap:
            self._learn(message.shards)
        elif kind is NodeList:
            self._nodes = message.nodes
            self._want(self._addresses())
        else:
            peer = self._peers.get(link)
            # Frames of a superseded connection count no more.
            if peer is not None and self._by_incarnation.get(peer.incarnation) is link:
                self._holder.engine_message(link, message)

    def link_down(self, link: Link, address: str) -> None:  # noqa: ARG002 - the keeper's interface
        """Forget the link; its asks have been told."""
        peer = self._peers.pop(link, None)
        if peer is not None and self._by_incarnation.get(peer.incarnation) is link:
            del self._by_incarnation[peer.incarnation]
        self._want(self._addresses())

    # What follows.

    def _welcome(self, link: Link, message: Welcome) -> None:
        peer = self._peers.get(link)
        if peer is None:
            return
        if message.version != LINK_VERSION:
            log.error(
                "engine speaks another version of the link protocol",
                extra={"address": peer.address, "theirs": message.version, "ours": LINK_VERSION},
            )
            link.close("version")
            return
        peer.incarnation = message.incarnation
        older = self._by_incarnation.get(message.incarnation)
        self._by_incarnation[message.incarnation] = link
        if older is not None and older is not link:
            older.close("superseded")
        link.send(self._holder.inventory(None))
        self._nodes = message.nodes or self._nodes
        self._want(self._addresses())
        moved = self._take_in(message.shards)
        own = {one.shard_id for one in self._map.values() if one.incarnation == message.incarnation}
        self._tell(moved - own)
        self._holder.shards_moved(own)
        log.info(
            "linked to engine",
            extra={"engine": message.node_id, "incarnation": message.incarnation},
        )

    def _learn(self, entries: Iterable[ShardEntry]) -> None:
        moved = self._take_in(entries)
        if moved:
            self._tell(moved)

    def _take_in(self, entries: Iterable[ShardEntry]) -> set[int]:
        """Return the shards of which something new is known."""
        moved: set[int] = set()
        for entry in entries:
            known = self._map.get(entry.shard_id)
            if known is None or entry.range_id > known.range_id:
                self._map[entry.shard_id] = entry
                moved.add(entry.shard_id)
        return moved

    def _tell(self, moved: set[int]) -> None:
        """Tell the owners of these shards what is held of them, then repeat what is unanswered."""
        by_owner: dict[Link, set[int]] = {}
        for shard_id in moved:
            link = self.owner(shard_id)
            if link is not None:
                by_owner.setdefault(link, set()).add(shard_id)
        for link, shard_ids in by_owner.items():
            link.send(self._holder.inventory(shard_ids))
            self._holder.shards_moved(shard_ids)

    def _addresses(self) -> list[str]:
        """Return whom to keep links to.

        An engine that is linked is kept under the address at which it is linked; the others under
        the one that they advertise; the seeds while no engine is linked.
        """
        linked = {peer.incarnation: peer.address for peer in self._peers.values()}
        wanted = [peer.address for peer in self._peers.values()]
        wanted += [
            self._route(node.address)
            for node in self._nodes
            if node.address and node.incarnation not in linked
        ]
        if not self._by_incarnation:
            wanted += self._seeds
        return wanted


def _nobody(_: Iterable[str]) -> None:
    """Stand in until somebody keeps the links."""
