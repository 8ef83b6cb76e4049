"""What the tables hold of a run, as read: one struct for each kind of row.

Instants are integer microseconds since 1970 UTC (`_us`), ids are text, and what the engine packed
comes unpacked into plain dicts, lists, strings, numbers and bytes: names of fields and types of
events are all that is taken over from the code that wrote it. `commit_at_us` is when the
transaction that wrote the row committed, by the database's clock; None where the server does not
keep that (`track_commit_timestamp`) or keeps it no longer.
"""

from __future__ import annotations

from typing import Any

import msgspec

Attributes = dict[str, Any]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all rows."""


class EventRow(_Row, frozen=True, kw_only=True):
    """A row of `event`. `damage` says why the attributes cannot be read; they are then empty."""

    shard_id: int
    run_id: str
    event_id: int
    type: str
    recorded_at_us: int
    range_id: int
    txid: int
    commit_at_us: int | None
    attributes: Attributes
    damage: str = ""


class ExecutionRow(_Row, frozen=True, kw_only=True):
    """A row of `execution`.

    `pending` is the unpacked column: [workflow task, {command id: activity}, {command id: timer},
    reports]; None if it cannot be read.
    """

    shard_id: int
    run_id: str
    namespace: str
    workflow_id: str
    first_run_id: str
    workflow_type: str
    task_queue: str
    status: str
    next_event_id: int
    started_at_us: int
    closed_at_us: int | None
    last_event_at_us: int
    due_at_us: int | None
    has_task: bool
    signal_count: int
    history_bytes: int
    pending: list[Any] | None


class TermRow(_Row, frozen=True, kw_only=True):
    """A row of `shard_term`: `what` is acquired, bumped, released or expired."""

    shard_id: int
    range_id: int
    incarnation: str
    node_id: str
    what: str
    at_us: int
    txid: int
    commit_at_us: int | None


class RequestRow(_Row, frozen=True, kw_only=True):
    """A row of `request`: what was acknowledged under a request id."""

    shard_id: int
    namespace: str
    workflow_id: str
    request_id: str
    kind: str
    run_id: str
    event_id: int
    body_hash: bytes
    created_at_us: int


class OutboxRow(_Row, frozen=True, kw_only=True):
    """A row of `outbox` that names the run. `entry` is its unpacked body; None if damaged."""

    shard_id: int
    id: int
    destination: str
    entry: list[Any] | None
    created_at_us: int
    publish_count: int
    next_publish_at_us: int


class EffectRow(_Row, frozen=True, kw_only=True):
    """A row of a mock's ledger: `kind` is what was done to the order, under which key.

    `seq` orders the effects of one order over all services.
    """

    seq: int
    service: str
    kind: str
    order_id: str
    idempotency_key: str
    amount_cents: int
    body_hash: bytes
    at_us: int


class RunRows(_Row, frozen=True, kw_only=True):
    """Everything about one run, read in one snapshot.

    None says that something was not read, which is never the same as empty: a rule that needs it
    answers *unknown*.

    Attributes:
        run_id: The run.
        execution: Its row; None if there is none, although the events are here.
        events: Its whole history, by event id.
        terms: The happenings of its shard, from the oldest range of an event on, and at least one
            range further than the newest range of an event, where there is one.
        requests: What was acknowledged for this run.
        outbox: The tasks of this run on their way out.
        effects: The effects under keys of this run, and every other effect on the same orders.
        effects_since_us: How far back the ledgers go: their oldest row, whatever it is about; None
            if they hold nothing at all.
        has_commit_times: Whether the server keeps commit times at all.
        is_whole: False where only the first or last event was read, for the links of a chain: such
            a run is not to be judged by itself.
        read_at_us: The database's clock when this was read.
    """

    run_id: str
    execution: ExecutionRow | None
    events: tuple[EventRow, ...]
    terms: tuple[TermRow, ...] | None = None
    requests: tuple[RequestRow, ...] | None = None
    outbox: tuple[OutboxRow, ...] | None = None
    effects: tuple[EffectRow, ...] | None = None
    effects_since_us: int | None = None
    has_commit_times: bool = False
    is_whole: bool = True
    read_at_us: int = 0


class Chain(_Row, frozen=True, kw_only=True):
    """The runs of one workflow id that continue one another, oldest first.

    A neighbour of the runs in question may be there without being whole. `starts` are the execution
    rows of the chain's runs, the unread ones too; None if that was not looked up.
    """

    namespace: str
    workflow_id: str
    runs: tuple[RunRows, ...]
    starts: tuple[ExecutionRow, ...] | None = None


_decode = msgspec.msgpack.Decoder().decode


def unpacked_attributes(packed: bytes) -> tuple[Attributes, str]:
    """Return an event's attributes and "", or {} and why they cannot be read."""
    try:
        found = _decode(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return {}, str(error) or type(error).__name__
    if not isinstance(found, dict):
        return {}, f"the attributes are a {type(found).__name__}, not a map"
    return found, ""


def unpacked_list(packed: bytes) -> list[Any] | None:
    """Return what a row's `pending` or `body` holds, or None if it cannot be read."""
    try:
        found = _decode(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def open_commands(execution: ExecutionRow) -> frozenset[int] | None:
    """Return the command ids that the row waits for; None if it cannot be read."""
    match execution.pending:
        case [_, dict() as activities, dict() as timers, *_]:
            return frozenset(activities) | frozenset(timers)
        case _:
            return None


def idempotency_key(workflow_id: str, run_id: str, activity_id: str) -> str:
    """Return the key that all attempts of an activity send to the services."""
    return f"{workflow_id}/{run_id}/{activity_id}"
