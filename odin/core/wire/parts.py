"""What messages are made of, and the two that every link carries."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from odin.core.ids import ID_PATTERN
from odin.core.payload import Failure, Payload

INSTANT_US_MAX: Final = 2**62
"""As `decide.NEVER_US`: later instants could not be added to and stored."""

# A frame with a value outside of these is damaged, and its link ends: whoever sends it is broken or
# lies, and what it says must not reach a decision or the database.
Seq: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]
ShardNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
RangeNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]
EventNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Instant: TypeAlias = Annotated[int, Meta(ge=0, le=INSTANT_US_MAX)]
Token: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
"""Something that is only compared: a run id, a token, an incarnation."""
Label: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
"""Something that is stored in a column or shown: an id."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


class QueueSpec(Message, frozen=True):
    """A task queue that a worker serves, and which kinds of it."""

    task_queue: Label
    workflows: bool
    activities: bool


class HeldClaim(Message, frozen=True):
    """An attempt that a worker holds, or whose result it has sent and not seen answered."""

    shard_id: ShardNumber
    run_id: Name
    command_id: Seq
    attempt: Count
    claim_token: Name


class WarmRun(Message, frozen=True):
    """A run in a worker's memory, with the newest state token that covers all that it holds."""

    shard_id: ShardNumber
    run_id: Name
    token: Token
    last_event_id: EventNumber


class ShardEntry(Message, frozen=True):
    """Who owns a shard; of two entries for one shard the higher range_id is right.

    Owner "" means nobody.
    """

    shard_id: ShardNumber
    incarnation: Annotated[str, Meta(max_length=200)]
    range_id: RangeNumber


class NodeEntry(Message, frozen=True):
    """A live engine and where its API and links listen (http://host:port)."""

    incarnation: str
    node_id: str
    address: str


class TaskEntry(Message, frozen=True):
    """One task as a broker message or a Tasks frame names it: ids only.

    `kind` is "w" (number = workflow task number) or "a" (number = command_id). `attempt` is the
    attempt that a claim would begin.
    """

    kind: str
    shard_id: ShardNumber
    range_id: RangeNumber
    run_id: Name
    number: Count
    attempt: Count


class RunHeader(Message, frozen=True):
    """What a worker must know of a run beside its events."""

    shard_id: ShardNumber
    namespace: str
    workflow_id: str
    run_id: Name
    workflow_type: str
    task_queue: str
    first_run_id: str


class ActivityOutcome(Message, frozen=True):
    """How an attempt ended. `how` is completed (result), failed (failure) or canceled (details)."""

    how: str
    result: Payload | None = None
    failure: Failure | None = None
    details: tuple[Payload, ...] = ()


class Ping(Message, frozen=True, tag="ping"):
    """Answered by a Pong with the same number."""

    seq: Seq


class Pong(Message, frozen=True, tag="pong"):
    """The other end is alive."""

    seq: Seq
