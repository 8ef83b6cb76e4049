"""What messages are made of, and the two that every link carries."""

from __future__ import annotations

import msgspec

from odin.core.payload import Failure, Payload


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


class QueueSpec(Message, frozen=True):
    """A task queue that a worker serves, and which kinds of it."""

    task_queue: str
    workflows: bool
    activities: bool


class HeldClaim(Message, frozen=True):
    """An attempt that a worker holds, or whose result it has sent and not seen answered."""

    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str


class WarmRun(Message, frozen=True):
    """A run in a worker's memory, with the newest state token that covers all that it holds."""

    shard_id: int
    run_id: str
    token: int
    last_event_id: int


class ShardEntry(Message, frozen=True):
    """Who owns a shard; of two entries for one shard the higher range_id is right.

    Owner "" means nobody.
    """

    shard_id: int
    incarnation: str
    range_id: int


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
    shard_id: int
    range_id: int
    run_id: str
    number: int
    attempt: int


class RunHeader(Message, frozen=True):
    """What a worker must know of a run beside its events."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str
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

    seq: int


class Pong(Message, frozen=True, tag="pong"):
    """The other end is alive."""

    seq: int
