"""What an engine says to a worker."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from odin.core.events import HistoryEvent
from odin.core.payload import Payload
from odin.core.wire.parts import (
    Count,
    EventNumber,
    Instant,
    Message,
    Name,
    NodeEntry,
    RunHeader,
    Seq,
    ShardEntry,
    ShardNumber,
    TaskEntry,
    Token,
)


class Welcome(Message, frozen=True, tag="welcome"):
    """The first message of an engine on every connection."""

    version: int
    incarnation: str
    node_id: str
    shard_count: Annotated[int, Meta(ge=1, le=2**16)]
    shards: tuple[ShardEntry, ...]
    nodes: tuple[NodeEntry, ...]


class ShardMap(Message, frozen=True, tag="shards"):
    """Changes of ownership."""

    shards: tuple[ShardEntry, ...]


class NodeList(Message, frozen=True, tag="nodes"):
    """All live engines."""

    nodes: tuple[NodeEntry, ...]


class WorkflowTaskGranted(Message, frozen=True, tag="granted_w"):
    """The claim holds. `events` follow the announced token if it was good, else begin at the start.

    `upper_event_id` is the newest event of this task: more pages are to be fetched while the last
    event is older. `token` is the state token at `upper_event_id`, to be used only once all events
    up to it are held. `from_start` says that the events begin with event 1 and what the worker held
    of the run is to be dropped.
    """

    seq: Seq
    header: RunHeader
    number: Seq
    attempt: Count
    task_token: Token
    time_us: Instant
    events: tuple[HistoryEvent, ...]
    upper_event_id: EventNumber
    token: Token
    from_start: bool


class ActivityTaskGranted(Message, frozen=True, tag="granted_a"):
    """The claim holds: everything needed to run the attempt."""

    seq: Seq
    header: RunHeader
    command_id: Seq
    activity_id: str
    activity_type: str
    task_queue: str
    attempt: Count
    claim_token: Name
    input: tuple[Payload, ...]
    scheduled_us: Instant
    start_to_close_ms: int | None
    heartbeat_ms: int | None
    deadline_us: int | None
    now_us: Instant
    heartbeat_details: tuple[Payload, ...] = ()


class NotWanted(Message, frozen=True, tag="not_wanted"):
    """The task is done, taken by another, or no more; acknowledge its message and forget it."""

    seq: Seq


class NotOwner(Message, frozen=True, tag="not_owner"):
    """This engine does not serve the shard (or could not be sure of the commit).

    Ask the owner, with the same ids.
    """

    seq: Seq
    shard: ShardEntry
    retry_ms: Annotated[int, Meta(ge=0, le=60_000)] = 100


class WorkflowTaskAccepted(Message, frozen=True, tag="accepted_w"):
    """The report stands: all events after its `seen` up to its batch's last, and the token there.

    `closed` says that the run is closed. Not `complete`: the events are too large for one frame,
    and without all of them the token is not to be used: let go of the run.
    """

    seq: Seq
    events: tuple[HistoryEvent, ...]
    token: Token
    closed: bool = False
    complete: bool = True


class WorkflowTaskRefused(Message, frozen=True, tag="refused_w"):
    """The report does not stand: drop the warm state.

    `reason`: stale, closed, unseen (the task goes round at once), or failed (the task failed, as
    reported or because of its commands, and comes again after its backoff).
    """

    seq: Seq
    reason: str


class ActivityReportAnswered(Message, frozen=True, tag="answered_a"):
    """The result is recorded, or (`accepted` False) the attempt is no longer wanted."""

    seq: Seq
    accepted: bool


class PushWorkflowTask(Message, frozen=True, tag="push_w"):
    """The next workflow task of a run that this worker keeps warm, and its unseen events."""

    header: RunHeader
    number: Seq
    attempt: Count
    task_token: Token
    time_us: Instant
    after_event_id: EventNumber
    events: tuple[HistoryEvent, ...]
    upper_event_id: EventNumber
    token: Token


class HistoryPage(Message, frozen=True, tag="page"):
    """Events in order; empty when there are none in the range."""

    seq: Seq
    events: tuple[HistoryEvent, ...]


class Tasks(Message, frozen=True, tag="tasks"):
    """Embedded transport: the same ids as a broker message carries. To be answered by a Receipt."""

    seq: Seq
    task_queue: str
    tasks: tuple[TaskEntry, ...]


class CancelActivity(Message, frozen=True, tag="cancel_a"):
    """Stop the attempt: it was cancelled, its run is closed, or its claim token is stale."""

    shard_id: ShardNumber
    run_id: Name
    command_id: Seq
    claim_token: Name
    reason: str
