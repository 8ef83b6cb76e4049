"""What engines say to each other."""

from __future__ import annotations

from odin.core.requests import ClientRequest
from odin.core.wire.parts import Count, Message, RangeNumber, Seq, ShardEntry, ShardNumber


class PeerHello(Message, frozen=True, tag="peer"):
    """The first message of each engine on a link between engines."""

    version: int
    incarnation: str
    node_id: str
    shards: tuple[ShardEntry, ...]


class Forward(Message, frozen=True, tag="forward"):
    """A client's request for a shard that the receiver owns.

    `timeout_ms` is what is left of the client's deadline.
    """

    seq: Seq
    shard_id: ShardNumber
    timeout_ms: Count
    request: ClientRequest


class Forwarded(Message, frozen=True, tag="forwarded"):
    """The owner's answer: `body` is msgpack of the answer struct."""

    seq: Seq
    body: bytes


class ForwardFailed(Message, frozen=True, tag="forward_failed"):
    """The owner's refusal: an OdinError in parts."""

    seq: Seq
    code: str
    reason: str
    message: str
    retry_after: float | None = None
    details: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default


class Unsubscribe(Message, frozen=True, tag="unsubscribe"):
    """The sender no longer waits for the answer to the Forward with this seq."""

    seq: Seq


class ReleaseTold(Message, frozen=True, tag="released"):
    """The sender has released the shard to the receiver: take it now."""

    shard_id: ShardNumber
    range_id: RangeNumber
