"""What a worker says to an engine."""

from __future__ import annotations

from odin.core.commands import Command
from odin.core.payload import Failure, Payload
from odin.core.wire.parts import ActivityOutcome, HeldClaim, Message, QueueSpec, TaskEntry, WarmRun


class Hello(Message, frozen=True, tag="hello"):
    """The first message of a worker on every connection."""

    version: int
    worker: str
    name: str
    build_id: str
    namespace: str
    queues: tuple[QueueSpec, ...]
    workflow_types: tuple[str, ...]
    activity_types: tuple[str, ...]
    workflow_slots: int
    activity_slots: int


class Inventory(Message, frozen=True, tag="inventory"):
    """What the worker holds of the shards named, of all if None.

    Sent on every connect, and whenever a shard of which it holds something gets a new range_id.
    """

    shards: tuple[int, ...] | None
    claims: tuple[HeldClaim, ...]
    warm: tuple[WarmRun, ...]


class ClaimWorkflowTask(Message, frozen=True, tag="claim_w"):
    """Is this workflow task still wanted? `token`: of what the worker holds of the run, or None."""

    seq: int
    shard_id: int
    run_id: str
    number: int
    token: int | None = None
    last_event_id: int = 0


class ClaimActivityTask(Message, frozen=True, tag="claim_a"):
    """Is this attempt still wanted? The same `claim_token` again gets the same answer."""

    seq: int
    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str


class ReportWorkflowTask(Message, frozen=True, tag="done_w"):
    """A workflow task was run; `sticky` says that the worker keeps the run warm."""

    seq: int
    report_id: str
    shard_id: int
    run_id: str
    number: int
    task_token: int
    seen: int
    time_us: int
    commands: tuple[Command, ...]
    sticky: bool = True


class ReportWorkflowTaskFailure(Message, frozen=True, tag="fail_w"):
    """A workflow task could not be run: a bug, a mismatch with history, a guard.

    The run stays open.
    """

    seq: int
    report_id: str
    shard_id: int
    run_id: str
    number: int
    task_token: int
    failure: Failure


class ReportActivityTask(Message, frozen=True, tag="done_a"):
    """An attempt has ended."""

    seq: int
    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str
    outcome: ActivityOutcome


class Heartbeat(Message, frozen=True, tag="beat"):
    """An attempt is alive; answered with CancelActivity when it is not wanted, else not at all."""

    shard_id: int
    run_id: str
    command_id: int
    claim_token: str
    details: tuple[Payload, ...] = ()


class Release(Message, frozen=True, tag="release"):
    """The worker gives unclaimed tasks back: published again after `delay_ms`, no attempt spent."""

    tasks: tuple[TaskEntry, ...]
    delay_ms: int = 500


class FetchHistory(Message, frozen=True, tag="fetch"):
    """The events after `after_event_id` up to and including `upper_event_id`."""

    seq: int
    shard_id: int
    run_id: str
    after_event_id: int
    upper_event_id: int


class Evicted(Message, frozen=True, tag="evicted"):
    """The run is no longer in the worker's memory."""

    shard_id: int
    run_id: str


class Slots(Message, frozen=True, tag="slots"):
    """Free slots now (embedded transport: the engine pushes no more than these)."""

    workflow_free: int
    activity_free: int


class Receipt(Message, frozen=True, tag="receipt"):
    """A Tasks frame has arrived and its ids are in the worker's memory.

    `taken` False: no room, publish again later.
    """

    seq: int
    taken: bool = True
