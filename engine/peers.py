"""Links between engines: a client's request travels to the owner of its shard, its answer back.

Each engine dials every other one and asks on the links that it has dialled; on the links that it
was dialled on it answers. News of ownership goes both ways on both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from odin import errors
from odin.core import requests, wire
from odin.core.door import check_request
from odin.core.requests import Accepted, ClientRequest, Outcome, Started
from odin.errors import NotOwnerError, OdinError
from odin.runtime.links import SILENT, Link, Message

from .work import Work

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[type, Callable[[bytes], Any]]] = {
    requests.StartWorkflow: msgspec.msgpack.Decoder(Started).decode,
    requests.SignalWorkflow: msgspec.msgpack.Decoder(Accepted).decode,
    requests.RequestCancelWorkflow: msgspec.msgpack.Decoder(Accepted).decode,
    requests.TerminateWorkflow: msgspec.msgpack.Decoder(Accepted).decode,
    requests.WaitWorkflow: msgspec.msgpack.Decoder(Outcome).decode,
}
ANSWER_SECONDS: Final = 0.5

Answer = Started | Accepted | Outcome


class Identity(Protocol):
    """What a peer is told of this engine."""

    incarnation: str
    node_id: str


class Peers:
    """This engine's links to the others."""

    def __init__(
        self,
        me: Identity,
        work: Work,
        ask: Callable[[ClientRequest], Awaitable[Answer]],
        learn: Callable[[Iterable[wire.ShardEntry]], None],
        own: Callable[[], tuple[wire.ShardEntry, ...]],
    ) -> None:
        self._me = me
        self._work = work
        self._ask = ask
        self._learn = learn
        self._own = own
        self._dialled: dict[str, Link] = {}
        self._cut: set[str] = set()
        self._all: dict[Link, None] = {}  # in order: the same run, told twice, must be the same
        self.on_released: Callable[[int], None] = lambda _shard: None
        self.forwarded_count = 0

    # --- links that this engine has dialled (LinkUser) --------------------------------------------

    def link_up(self, link: Link, address: str) -> None:
        """A dialled link is open."""
        self._dialled[address] = link
        self._cut.discard(address)
        self._greet(link)

    def link_message(self, link: Link, message: Message) -> None:
        """A message arrived on a dialled link."""
        self._hear(link, message)

    def link_down(self, link: Link, address: str) -> None:
        """A dialled link has ended."""
        if self._dialled.get(address) is link:
            del self._dialled[address]
        self._all.pop(link, None)
        if link.close_reason == SILENT:
            self._cut.add(address)

    # --- links that this engine was dialled on ----------------------------------------------------

    async def serve(self, link: Link) -> None:
        """Carry a link that another engine has dialled, until it ends."""
        self._greet(link)
        try:
            await link.run(lambda message: self._hear(link, message))
        finally:
            self._all.pop(link, None)

    def _greet(self, link: Link) -> None:
        self._all[link] = None
        link.send(
            wire.PeerHello(wire.LINK_VERSION, self._me.incarnation, self._me.node_id, self._own())
        )

    def _hear(self, link: Link, message: Message) -> None:
        match message:
            case wire.Forward():
                self._work.start(self._answer(link, message))
            case wire.PeerHello(version=version) if version != wire.LINK_VERSION:
                link.close("expected a hello of this version of the protocol")
            case wire.PeerHello() | wire.ShardMap():
                self._learn(message.shards)
            case wire.ReleaseTold():
                self.on_released(message.shard_id)
            case _:
                log.debug("message ignored", extra={"kind": type(message).__name__})

    async def _answer(self, link: Link, message: wire.Forward) -> None:
        """Answer a forwarded request as its owner, or say that this engine is not."""
        try:
            check_request(message.request)
            async with asyncio.timeout(message.timeout_ms / 1_000 + ANSWER_SECONDS):
                answer = await self._ask(message.request)
        except TimeoutError:
            return  # the other end has given up before
        except OdinError as error:
            details = {key: str(value) for key, value in error.details.items()}
            link.send(
                wire.ForwardFailed(
                    message.seq,
                    error.code.value,
                    error.reason,
                    str(error),
                    error.retry_after,
                    details,
                )
            )
        else:
            link.send(wire.Forwarded(message.seq, _encode(answer)))

    # --- asking -----------------------------------------------------------------------------------

    def has_link(self, address: str) -> bool:
        """Return whether the engine at `address` can be asked now."""
        link = self._dialled.get(address)
        return link is not None and not link.closed

    def is_cut_off(self, address: str) -> bool:
        """Return whether the engine at `address` fell silent and has not been heard of since.

        Others may reach it. An engine whose process ends is none of these: its links end at once.
        """
        return address in self._cut and not self.has_link(address)

    async def forward(
        self, address: str, shard_id: int, request: ClientRequest, timeout_seconds: float
    ) -> Answer:
        """Ask the engine at `address` and return its answer.

        Raises:
            NotOwnerError: There is no link, it broke, or the other is not the owner: ask again.
            OdinError: The owner's refusal.
        """
        link = self._dialled.get(address)
        if link is None:
            raise NotOwnerError(f"no link to {address}")
        self.forwarded_count += 1
        timeout_ms = int(timeout_seconds * 1_000)
        answer = await link.ask(
            lambda seq: wire.Forward(seq, shard_id, timeout_ms, request),
            timeout_seconds + 2 * ANSWER_SECONDS,
        )
        if isinstance(answer, wire.ForwardFailed):
            raise errors.rebuild(
                answer.code,
                answer.reason,
                answer.message,
                retry_after=answer.retry_after,
                details=dict(answer.details),
            )
        return _DECODERS[type(request)](answer.body)  # type: ignore[no-any-return] # one decoder per request

    def tell_map(self, entries: tuple[wire.ShardEntry, ...]) -> None:
        """Tell the others of changes that concern this engine's own shards."""
        own = tuple(entry for entry in entries if entry.incarnation in (self._me.incarnation, ""))
        if own:
            for link in self._all:
                link.send(wire.ShardMap(own))

    def tell_released(self, address: str, shard_id: int, range_id: int) -> None:
        """Tell the heir at `address` that the shard is its to take."""
        link = self._dialled.get(address)
        if link is not None:
            link.send(wire.ReleaseTold(shard_id, range_id))

    def close(self) -> None:
        """End all links: the engine stops."""
        for link in list(self._all):
            link.close("the engine stops")
