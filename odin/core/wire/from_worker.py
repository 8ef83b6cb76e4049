"""What a worker says to an engine."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from odin.core.commands import Command
from odin.core.payload import Failure, Payload
from odin.core.wire.parts import (
    ActivityOutcome,
    Count,
    EventNumber,
    HeldClaim,
    Instant,
    Label,
    Message,
    Name,
    QueueSpec,
    Seq,
    ShardNumber,
    TaskEntry,
    Token,
    WarmRun,
)

RELEASE_MS_MAX: Final = 600_000
"""The longest wait that a worker may ask for when it gives a task back."""
TYPES_MAX: Final = 10_000
QUEUES_MAX: Final = 1_000


class Hello(Message, frozen=True, tag="hello"):
    """The first message of a worker on every connection."""

    version: int
    worker: Label
    name: Annotated[str, Meta(max_length=200)]
    build_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:@+-]{0,200}\Z")]
    namespace: Label
    queues: Annotated[tuple[QueueSpec, ...], Meta(max_length=QUEUES_MAX)]
    workflow_types: Annotated[tuple[Name, ...], Meta(max_length=TYPES_MAX)]
    activity_types: Annotated[tuple[Name, ...], Meta(max_length=TYPES_MAX)]
    workflow_slots: Count
    activity_slots: Count


class Inventory(Message, frozen=True, tag="inventory"):
    """What the worker holds of the shards named, of all if None.

    Sent on every connect, and whenever a shard of which it holds something gets a new range_id.
    """

    shards: tuple[ShardNumber, ...] | None
    claims: tuple[HeldClaim, ...]
    warm: tuple[WarmRun, ...]


class ClaimWorkflowTask(Message, frozen=True, tag="claim_w"):
    """Is this workflow task still wanted? `token`: of what the worker holds of the run, or None."""

    seq: Seq
    shard_id: ShardNumber
    run_id: Name
    number: Seq
    token: Token | None = None
    last_event_id: EventNumber = 0


class ClaimActivityTask(Message, frozen=True, tag="claim_a"):
    """Is this attempt still wanted? The same `claim_token` again gets the same answer."""

    seq: Seq
    shard_id: ShardNumber
    run_id: Name
    command_id: Seq
    attempt: Count
    claim_token: Name


class ReportWorkflowTask(Message, frozen=True, tag="done_w"):
    """A workflow task was run; `sticky` says that the worker keeps the run warm."""

    seq: Seq
    report_id: Name
    shard_id: ShardNumber
    run_id: Name
    number: Seq
    task_token: Token
    seen: EventNumber
    time_us: Instant
    commands: tuple[Command, ...]
    sticky: bool = True


class ReportWorkflowTaskFailure(Message, frozen=True, tag="fail_w"):
    """A workflow task could not be run: a bug, a mismatch with history, a guard.

    The run stays open.
    """

    seq: Seq
    report_id: Name
    shard_id: ShardNumber
    run_id: Name
    number: Seq
    task_token: Token
    failure: Failure


class ReportActivityTask(Message, frozen=True, tag="done_a"):
    """An attempt has ended."""

    seq: Seq
    shard_id: ShardNumber
    run_id: Name
    command_id: Seq
    attempt: Count
    claim_token: Name
    outcome: ActivityOutcome


class Heartbeat(Message, frozen=True, tag="beat"):
    """An attempt is alive; answered with CancelActivity when it is not wanted, else not at all."""

    shard_id: ShardNumber
    run_id: Name
    command_id: Seq
    claim_token: Name
    details: tuple[Payload, ...] = ()


class Release(Message, frozen=True, tag="release"):
    """The worker gives unclaimed tasks back: published again after `delay_ms`, no attempt spent."""

    tasks: tuple[TaskEntry, ...]
    delay_ms: Annotated[int, Meta(ge=0, le=RELEASE_MS_MAX)] = 500


class FetchHistory(Message, frozen=True, tag="fetch"):
    """The events after `after_event_id` up to and including `upper_event_id`."""

    seq: Seq
    shard_id: ShardNumber
    run_id: Name
    after_event_id: EventNumber
    upper_event_id: EventNumber


class Evicted(Message, frozen=True, tag="evicted"):
    """The run is no longer in the worker's memory."""

    shard_id: ShardNumber
    run_id: Name


class Slots(Message, frozen=True, tag="slots"):
    """Free slots now (embedded transport: the engine pushes no more than these)."""

    workflow_free: Count
    activity_free: Count


class Receipt(Message, frozen=True, tag="receipt"):
    """A Tasks frame has arrived and its ids are in the worker's memory.

    `taken` False: no room, publish again later.
    """

    seq: Seq
    taken: bool = True
