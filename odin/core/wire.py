"""The messages on links: worker to engine, engine to worker, engine to engine.

A frame is one WebSocket binary message: a msgpack array of the structs below, so that one frame
carries a batch. Every struct is an array whose first element is its tag. `seq` ties an answer to
what it answers; it counts per link and side, and 0 means that no answer is expected. Fields are
only ever appended, with a default.

"worker" is always the incarnation of a process, never its name. Instants are `_us` since 1970 UTC
by the cluster's clock.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from odin.core.commands import Command
from odin.core.events import HistoryEvent
from odin.core.payload import Failure, Payload
from odin.core.requests import ClientRequest

LINK_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


# --- parts ----------------------------------------------------------------------------------------


class QueueSpec(_Message, frozen=True):
    """A task queue that a worker serves, and which kinds of it."""

    task_queue: str
    workflows: bool
    activities: bool


class HeldClaim(_Message, frozen=True):
    """An attempt that a worker holds, or whose result it has sent and not seen answered."""

    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str


class WarmRun(_Message, frozen=True):
    """A run in a worker's memory, with the newest state token that covers all that it holds."""

    shard_id: int
    run_id: str
    token: int
    last_event_id: int


class ShardEntry(_Message, frozen=True):
    """Who owns a shard; of two entries for one shard the higher range_id is right.

    Owner "" means nobody.
    """

    shard_id: int
    incarnation: str
    range_id: int


class NodeEntry(_Message, frozen=True):
    """A live engine and where its API and links listen (http://host:port)."""

    incarnation: str
    node_id: str
    address: str


class TaskEntry(_Message, frozen=True):
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


class RunHeader(_Message, frozen=True):
    """What a worker must know of a run beside its events."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    first_run_id: str


class ActivityOutcome(_Message, frozen=True):
    """How an attempt ended. `how` is completed (result), failed (failure) or canceled (details)."""

    how: str
    result: Payload | None = None
    failure: Failure | None = None
    details: tuple[Payload, ...] = ()


# --- worker to engine -----------------------------------------------------------------------------


class Hello(_Message, frozen=True, tag="hello"):
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


class Inventory(_Message, frozen=True, tag="inventory"):
    """What the worker holds of the shards named (None.

    Of all): sent on connect and when a shard's range_id moves.
    """

    shards: tuple[int, ...] | None
    claims: tuple[HeldClaim, ...]
    warm: tuple[WarmRun, ...]


class ClaimWorkflowTask(_Message, frozen=True, tag="claim_w"):
    """Is this workflow task still wanted? `token`: of what the worker holds of the run, or None."""

    seq: int
    shard_id: int
    run_id: str
    number: int
    token: int | None = None
    last_event_id: int = 0


class ClaimActivityTask(_Message, frozen=True, tag="claim_a"):
    """Is this attempt still wanted? The same `claim_token` again gets the same answer."""

    seq: int
    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str


class ReportWorkflowTask(_Message, frozen=True, tag="done_w"):
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


class ReportWorkflowTaskFailure(_Message, frozen=True, tag="fail_w"):
    """A workflow task could not be run.

    A bug, a mismatch with history, a guard. The run stays open.
    """

    seq: int
    report_id: str
    shard_id: int
    run_id: str
    number: int
    task_token: int
    failure: Failure


class ReportActivityTask(_Message, frozen=True, tag="done_a"):
    """An attempt has ended."""

    seq: int
    shard_id: int
    run_id: str
    command_id: int
    attempt: int
    claim_token: str
    outcome: ActivityOutcome


class Heartbeat(_Message, frozen=True, tag="beat"):
    """An attempt is alive; answered with CancelActivity when it is not wanted, else not at all."""

    shard_id: int
    run_id: str
    command_id: int
    claim_token: str
    details: tuple[Payload, ...] = ()


class Release(_Message, frozen=True, tag="release"):
    """The worker gives unclaimed tasks back.

    They are published again after `delay_ms`, no attempt spent.
    """

    tasks: tuple[TaskEntry, ...]
    delay_ms: int = 500


class FetchHistory(_Message, frozen=True, tag="fetch"):
    """The events after `after_event_id` up to and including `upper_event_id`."""

    seq: int
    shard_id: int
    run_id: str
    after_event_id: int
    upper_event_id: int


class Evicted(_Message, frozen=True, tag="evicted"):
    """The run is no longer in the worker's memory."""

    shard_id: int
    run_id: str


class Slots(_Message, frozen=True, tag="slots"):
    """Free slots now (embedded transport: the engine pushes no more than these)."""

    workflow_free: int
    activity_free: int


class Receipt(_Message, frozen=True, tag="receipt"):
    """A Tasks frame has arrived and its ids are in the worker's memory.

    `taken` False: no room, publish again later.
    """

    seq: int
    taken: bool = True


# --- engine to worker -----------------------------------------------------------------------------


class Welcome(_Message, frozen=True, tag="welcome"):
    """The first message of an engine on every connection."""

    version: int
    incarnation: str
    node_id: str
    shard_count: int
    shards: tuple[ShardEntry, ...]
    nodes: tuple[NodeEntry, ...]


class ShardMap(_Message, frozen=True, tag="shards"):
    """Changes of ownership."""

    shards: tuple[ShardEntry, ...]


class NodeList(_Message, frozen=True, tag="nodes"):
    """All live engines."""

    nodes: tuple[NodeEntry, ...]


class WorkflowTaskGranted(_Message, frozen=True, tag="granted_w"):
    """The claim holds. `events`.

    Those after the announced token if it was good, else the first page.

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


class ActivityTaskGranted(_Message, frozen=True, tag="granted_a"):
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


class NotWanted(_Message, frozen=True, tag="not_wanted"):
    """The task is done, taken by another, or no more; acknowledge its message and forget it."""

    seq: int


class NotOwner(_Message, frozen=True, tag="not_owner"):
    """This engine does not serve the shard (or could not be sure of the commit).

    Ask the owner, with the same ids.
    """

    seq: int
    shard: ShardEntry
    retry_ms: int = 100


class WorkflowTaskAccepted(_Message, frozen=True, tag="accepted_w"):
    """The report stands: all events after its `seen` up to its batch's last, and the token there.

    `next_push` says that another workflow task of the run is pending already and will be pushed to
    this worker.
    """

    seq: int
    events: tuple[HistoryEvent, ...]
    token: int
    closed: bool = False


class WorkflowTaskRefused(_Message, frozen=True, tag="refused_w"):
    """The report does not stand.

    Drop the warm state. `reason`: stale, closed or unseen (goes round at once).
    """

    seq: int
    reason: str


class ActivityReportAnswered(_Message, frozen=True, tag="answered_a"):
    """The result is recorded, or (`accepted` False) the attempt is no longer wanted."""

    seq: int
    accepted: bool


class PushWorkflowTask(_Message, frozen=True, tag="push_w"):
    """The next workflow task of a run that this worker keeps warm.

    The events after `after_event_id`.
    """

    header: RunHeader
    number: int
    attempt: int
    task_token: int
    time_us: int
    after_event_id: int
    events: tuple[HistoryEvent, ...]
    upper_event_id: int
    token: int


class HistoryPage(_Message, frozen=True, tag="page"):
    """Events in order; empty when there are none in the range."""

    seq: int
    events: tuple[HistoryEvent, ...]


class Tasks(_Message, frozen=True, tag="tasks"):
    """Embedded transport: the same ids as a broker message carries. To be answered by a Receipt."""

    seq: int
    task_queue: str
    tasks: tuple[TaskEntry, ...]


class CancelActivity(_Message, frozen=True, tag="cancel_a"):
    """Stop the attempt: it was cancelled, its run is closed, or its claim token is stale."""

    shard_id: int
    run_id: str
    command_id: int
    claim_token: str
    reason: str


# --- engine to engine -----------------------------------------------------------------------------


class PeerHello(_Message, frozen=True, tag="peer"):
    """The first message of each engine on a link between engines."""

    version: int
    incarnation: str
    node_id: str
    shards: tuple[ShardEntry, ...]


class Forward(_Message, frozen=True, tag="forward"):
    """A client's request for a shard that the receiver owns.

    `timeout_ms` is what is left of the client's deadline.
    """

    seq: int
    shard_id: int
    timeout_ms: int
    request: ClientRequest


class Forwarded(_Message, frozen=True, tag="forwarded"):
    """The owner's answer: `body` is msgpack of the answer struct."""

    seq: int
    body: bytes


class ForwardFailed(_Message, frozen=True, tag="forward_failed"):
    """The owner's refusal: an OdinError in parts."""

    seq: int
    code: str
    reason: str
    message: str
    retry_after: float | None = None
    details: dict[str, str] = {}


class Unsubscribe(_Message, frozen=True, tag="unsubscribe"):
    """The sender no longer waits for the answer to the Forward with this seq."""

    seq: int


class ReleaseTold(_Message, frozen=True, tag="released"):
    """The sender has released the shard to the receiver: take it now."""

    shard_id: int
    range_id: int


class Ping(_Message, frozen=True, tag="ping"):
    """Answered by a Pong with the same number."""

    seq: int


class Pong(_Message, frozen=True, tag="pong"):
    """The other end is alive."""

    seq: int


FromWorker: TypeAlias = (
    Hello
    | Inventory
    | ClaimWorkflowTask
    | ClaimActivityTask
    | ReportWorkflowTask
    | ReportWorkflowTaskFailure
    | ReportActivityTask
    | Heartbeat
    | Release
    | FetchHistory
    | Evicted
    | Slots
    | Receipt
    | Ping
    | Pong
)
ToWorker: TypeAlias = (
    Welcome
    | ShardMap
    | NodeList
    | WorkflowTaskGranted
    | ActivityTaskGranted
    | NotWanted
    | NotOwner
    | WorkflowTaskAccepted
    | WorkflowTaskRefused
    | ActivityReportAnswered
    | PushWorkflowTask
    | HistoryPage
    | Tasks
    | CancelActivity
    | Ping
    | Pong
)
BetweenEngines: TypeAlias = (
    PeerHello
    | ShardMap
    | Forward
    | Forwarded
    | ForwardFailed
    | Unsubscribe
    | ReleaseTold
    | Ping
    | Pong
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_FROM_WORKER: Final = msgspec.msgpack.Decoder(list[FromWorker])
_TO_WORKER: Final = msgspec.msgpack.Decoder(list[ToWorker])
_BETWEEN_ENGINES: Final = msgspec.msgpack.Decoder(list[BetweenEngines])


def encode_frame(messages: list[FromWorker] | list[ToWorker] | list[BetweenEngines]) -> bytes:
    """Return the messages as one frame."""
    return _ENCODER.encode(messages)


def decode_from_worker(frame: bytes) -> list[FromWorker]:
    """Return a worker's messages.

    Raises:
        msgspec.DecodeError: The frame is damaged or of another protocol (msgspec.ValidationError is
        one of them).
    """
    return _FROM_WORKER.decode(frame)


def decode_to_worker(frame: bytes) -> list[ToWorker]:
    """Return an engine's messages to a worker; raises like `decode_from_worker`."""
    return _TO_WORKER.decode(frame)


def decode_between_engines(frame: bytes) -> list[BetweenEngines]:
    """Return an engine's messages to another engine; raises like `decode_from_worker`."""
    return _BETWEEN_ENGINES.decode(frame)
