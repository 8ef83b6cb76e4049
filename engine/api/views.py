"""What the API shows: the shapes of its answers, beside those of `odin.core.requests`.

Instants are aware UTC datetimes (ISO 8601 with `Z` on the wire), durations seconds, user values
their recorded JSON.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from odin.core.events import HistoryEvent
from odin.core.payload import JSON, Failure, Payload

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all views."""


class FailureView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Why something failed; `details` are user values, `next_retry_delay` is in seconds."""

    message: str
    kind: str = "application"
    type: str = ""
    non_retryable: bool = False
    next_retry_delay: float | None = None
    details: tuple[msgspec.Raw, ...] = ()
    stack_trace: str = ""
    timeout_type: str = ""
    source: str = ""
    cause: FailureView | None = None


class OutcomeView(View, frozen=True, kw_only=True, omit_defaults=True):
    """How a run stands: running while it is open, with its `result` once it completed."""

    run_id: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: FailureView | None = None
    new_run_id: str | None = None


class WorkflowTaskView(View, frozen=True, kw_only=True):
    """The workflow task of a run: none, scheduled or backoff; `next_attempt_at` only in backoff."""

    state: str
    number: int
    attempt: int
    failures: int = 0
    last_failure: FailureView | None = None
    next_attempt_at: datetime | None = None


class PendingActivityView(View, frozen=True, kw_only=True):
    """An activity that has not ended; `attempt` counts those begun."""

    activity_id: str
    activity_type: str
    command_id: int
    task_queue: str
    state: str
    attempt: int
    maximum_attempts: int = 0
    scheduled_at: datetime
    started_at: datetime | None = None
    next_attempt_at: datetime | None = None
    worker: str = ""
    last_failure: FailureView | None = None
    heartbeat_details: tuple[msgspec.Raw, ...] = ()
    cancel_requested: bool = False


class PendingTimerView(View, frozen=True, kw_only=True):
    """A timer that has not fired."""

    command_id: int
    fires_at: datetime


class ParentView(View, frozen=True, kw_only=True):
    """The execution that started this one as its child."""

    workflow_id: str
    run_id: str


class OwnerView(View, frozen=True, kw_only=True):
    """Where a run lives: its shard, the range_id, and the node that owns it ("" for nobody)."""

    shard_id: int
    range_id: int
    node_id: str = ""
    address: str = ""


class ExecutionView(View, frozen=True, kw_only=True):
    """Everything about one run but its history."""

    namespace: str
    workflow_id: str
    run_id: str
    first_run_id: str
    workflow_type: str
    task_queue: str
    status: str
    started_at: datetime
    closed_at: datetime | None = None
    history_length: int = 0
    history_bytes: int = 0
    signal_count: int = 0
    cancel_requested: bool = False
    origin: str = ""
    build_id: str = ""
    run_deadline_at: datetime | None = None
    execution_deadline_at: datetime | None = None
    owner: OwnerView
    workflow_task: WorkflowTaskView
    pending_activities: tuple[PendingActivityView, ...] = ()
    pending_timers: tuple[PendingTimerView, ...] = ()
    parent: ParentView | None = None
    input: tuple[msgspec.Raw, ...] = ()
    result: msgspec.Raw | None = None
    failure: FailureView | None = None
    new_run_id: str | None = None
    memo: dict[str, msgspec.Raw] = {}
    search_attributes: dict[str, msgspec.Raw] = {}


class ExecutionSummary(View, frozen=True, kw_only=True):
    """One line of a list of runs."""

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    status: str
    started_at: datetime
    closed_at: datetime | None = None
    history_length: int = 0
    origin: str = ""
    shard_id: int = 0


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list, newest first. `next_cursor` is opaque; None: the list ends here."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class HistoryPageView(View, frozen=True, kw_only=True):
    """Part of a history as it is stored. `has_more`: others follow in the same direction."""

    run_id: str
    events: tuple[HistoryEvent, ...]
    has_more: bool = False


class EventView(View, frozen=True, kw_only=True):
    """One event of a history as HTTP shows it."""

    event_id: int
    type: str
    recorded_at: datetime
    attributes: dict[str, Any]


class HistoryView(View, frozen=True, kw_only=True):
    """A page of a history; `next` goes into `after` (with order=desc: into `before`)."""

    run_id: str
    events: tuple[EventView, ...]
    next: int | None = None


class NodeView(View, frozen=True, kw_only=True):
    """An engine. `lease_age` counts seconds since its last renewal, as this node knows it."""

    node_id: str
    incarnation: str
    address: str
    state: str
    lease_age: float | None = None
    shard_count: int = 0
    is_self: bool = False


class ClusterView(View, frozen=True, kw_only=True):
    """The cluster as the answering node sees it."""

    mode: str
    broker: str
    shard_count: int
    node_id: str
    version: str = ""
    schema_version: str = ""
    nodes: tuple[NodeView, ...] = ()


class ShardView(View, frozen=True, kw_only=True):
    """Who owns a shard; `node_id` is "" while nobody does."""

    shard_id: int
    range_id: int
    node_id: str = ""
    incarnation: str = ""
    address: str = ""
    heir: str = ""


class WorkerView(View, frozen=True, kw_only=True):
    """A worker linked to the answering node."""

    name: str
    incarnation: str
    namespace: str
    build_id: str = ""
    task_queues: tuple[str, ...] = ()
    workflow_types: tuple[str, ...] = ()
    activity_types: tuple[str, ...] = ()
    workflow_slots: int = 0
    activity_slots: int = 0
    workflow_slots_free: int | None = None
    activity_slots_free: int | None = None
    warm_runs: int = 0
    connected_at: datetime | None = None


class CheckView(View, frozen=True, kw_only=True):
    """One condition for being ready."""

    ok: bool
    detail: str = ""


class ReadyView(View, frozen=True, kw_only=True):
    """Whether requests should be routed here, and why not."""

    ok: bool
    checks: dict[str, CheckView] = {}
    retry_after: float = 1.0


class MetricView(View, frozen=True, kw_only=True):
    """One sample. `name` begins with odin_; `kind` is counter, gauge or untyped."""

    name: str
    value: float
    labels: dict[str, str] = {}
    kind: str = "gauge"
    help: str = ""


def instant(microseconds: int) -> datetime:
    """Return the instant that lies `microseconds` after 1970 UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def instant_or_none(microseconds: int | None) -> datetime | None:
    """Return the instant, or None where none is meant (None, or 0)."""
    return instant(microseconds) if microseconds else None


def value_of(payload: Payload) -> msgspec.Raw:
    """Return a user value as JSON: its own bytes, or for other encodings their name and base64."""
    if payload.encoding == JSON:
        return msgspec.Raw(payload.data)
    return msgspec.Raw(msgspec.json.encode({"encoding": payload.encoding, "data": payload.data}))


def failure_view(failure: Failure | None) -> FailureView | None:
    """Return a failure as HTTP shows it."""
    if failure is None:
        return None
    delay = failure.next_retry_delay_ms
    return FailureView(
        message=failure.message,
        kind=failure.kind,
        type=failure.type,
        non_retryable=failure.non_retryable,
        next_retry_delay=None if delay is None else delay / 1_000,
        details=tuple(value_of(one) for one in failure.details),
        stack_trace=failure.stack_trace,
        timeout_type=failure.timeout_type,
        source=failure.source,
        cause=failure_view(failure.cause),
    )
