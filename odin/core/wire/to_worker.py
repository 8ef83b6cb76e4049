"""What an engine says to a worker."""

from __future__ import annotations

from odin.core.events import HistoryEvent
from odin.core.payload import Payload
from odin.core.wire.parts import Message, NodeEntry, RunHeader, ShardEntry, TaskEntry


class Welcome(Message, frozen=True, tag="welcome"):
    """The first message of an engine on every connection."""

    version: int
    incarnation: str
    node_id: str
    shard_count: int
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

    seq: int
    header: RunHeader
    number: int
    attempt: int
    task_token: int
    time_us: int
    events: tuple[HistoryEvent, ...]
    upper_event_id: int
    token: int
    from_start: bool


class ActivityTaskGranted(Message, frozen=True, tag="granted_a"):
    """The claim holds: everything needed to run the attempt."""

    seq: int
    header: RunHeader
    command_id: int
    activity_id: str
    activity_type: str
    task_queue: str
    attempt: int
    claim_token: str
    input: tuple[Payload, ...]
    scheduled_us: int
    start_to_close_ms: int | None
    heartbeat_ms: int | None
    deadline_us: int | None
    now_us: int
    heartbeat_details: tuple[Payload, ...] = ()


class NotWanted(Message, frozen=True, tag="not_wanted"):
    """The task is done, taken by another, or no more; acknowledge its message and forget it."""

    seq: int


class NotOwner(Message, frozen=True, tag="not_owner"):
    """This engine does not serve the shard (or could not be sure of the commit).

    Ask the owner, with the same ids.
    """

    seq: int
    shard: ShardEntry
    retry_ms: int = 100


class WorkflowTaskAccepted(Message, frozen=True, tag="accepted_w"):
    """The report stands: all events after its `seen` up to its batch's last, and the token there.

    `closed` says that the run is closed.
    """

    seq: int
    events: tuple[HistoryEvent, ...]
    token: int
    closed: bool = False


class WorkflowTaskRefused(Message, frozen=True, tag="refused_w"):
    """The report does not stand: drop the warm state.

    `reason`: stale, closed, unseen (the task goes round at once), or failed (the task failed, as
    reported or because of its commands, and comes again after its backoff).
    """

    seq: int
    reason: str


class ActivityReportAnswered(Message, frozen=True, tag="answered_a"):
    """The result is recorded, or (`accepted` False) the attempt is no longer wanted."""

    seq: int
    accepted: bool


class PushWorkflowTask(Message, frozen=True, tag="push_w"):
    """The next workflow task of a run that this worker keeps warm, and its unseen events."""

    header: RunHeader
    number: int
    attempt: int
    task_token: int
    time_us: int
    after_event_id: int
    events: tuple[HistoryEvent, ...]
    upper_event_id: int
    token: int


class HistoryPage(Message, frozen=True, tag="page"):
    """Events in order; empty when there are none in the range."""

    seq: int
    events: tuple[HistoryEvent, ...]


class Tasks(Message, frozen=True, tag="tasks"):
    """Embedded transport: the same ids as a broker message carries. To be answered by a Receipt."""

    seq: int
    task_queue: str
    tasks: tuple[TaskEntry, ...]


class CancelActivity(Message, frozen=True, tag="cancel_a"):
    """Stop the attempt: it was cancelled, its run is closed, or its claim token is stale."""

    shard_id: int
    run_id: str
    command_id: int
    claim_token: str
    reason: str
