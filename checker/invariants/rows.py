"""Rows that only the rules over many runs read; those of one run are in `odin.proof.rows`.

Instants are integer microseconds since 1970 UTC (`_us`). Everything comes from one snapshot of the
database, unless a row says otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from odin.proof.rows import RequestRow


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all rows."""


class ShardRow(_Row, frozen=True, kw_only=True):
    """A row of `shard`: the fence as it stands."""

    shard_id: int
    range_id: int
    owner: str | None


class CallRow(_Row, frozen=True, kw_only=True):
    """One call of a client, put together from its lines of `client_log`.

    `outcome` is ok, fail or unknown; a call without an end is unknown. `began` and `ended` are line
    numbers of the client's log, which is in the order of what it saw; `ended` is 0 without an end.
    """

    client: str
    call_id: str
    kind: str
    request_id: str
    run_id: str
    outcome: str
    began: int
    ended: int
    details: dict[str, Any]


class ClientRow(_Row, frozen=True, kw_only=True):
    """How complete the log of one client is: its lines are numbered from 1 without a gap."""

    client: str
    first_line: int
    last_line: int
    line_count: int


class RunRef(_Row, frozen=True, kw_only=True):
    """A run, as little of it as a start's judgement needs."""

    run_id: str
    first_run_id: str
    status: str
    has_parent: bool


class SignalEventRow(_Row, frozen=True, kw_only=True):
    """An event that records a signal."""

    run_id: str
    event_id: int
    request_id: str


class DeliveryRow(_Row, frozen=True, kw_only=True):
    """A signal that a mock service sent: `state` is reported once an engine has taken it."""

    request_id: str
    state: str


class Told(_Row, frozen=True, kw_only=True):
    """Everything about one workflow id that clients told of, and what stands of it.

    Attributes:
        calls: The calls of all clients, each client's in its order.
        requests: Every request row of the workflow id.
        runs: Every run of it.
        signals: Every signal in the histories of those runs, in their order.
        deliveries: The signals that mock services sent to it.
    """

    namespace: str
    workflow_id: str
    calls: tuple[CallRow, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    runs: tuple[RunRef, ...] = ()
    signals: tuple[SignalEventRow, ...] = ()
    deliveries: tuple[DeliveryRow, ...] = ()


class OutboxState(_Row, frozen=True, kw_only=True):
    """An outbox row and what became of the run that it names; `status` is empty without a run."""

    shard_id: int
    id: int
    run_id: str
    created_at_us: int
    publish_count: int
    status: str
    closed_at_us: int | None


class StockRow(_Row, frozen=True, kw_only=True):
    """The stock of one sku, and how much of it orders hold by their own rows."""

    sku: str
    total: int
    available: int
    reserved: int
    shipped: int
    held: int


class OrphanRow(_Row, frozen=True, kw_only=True):
    """An effect in a mock's ledger whose key names a run that does not exist."""

    seq: int
    kind: str
    order_id: str
    idempotency_key: str


class SessionRow(_Row, frozen=True, kw_only=True):
    """A session: for how long it has been idle in a transaction, or waiting for a lock."""

    pid: int
    application_name: str
    idle_in_transaction_seconds: float
    lock_wait_seconds: float


class TableRow(_Row, frozen=True, kw_only=True):
    """A table's row versions, as the server estimates them."""

    name: str
    live_tuples: int
    dead_tuples: int


class OutcomeRow(_Row, frozen=True, kw_only=True):
    """How a closed run ended, as a digest of its status and its closing event."""

    run_id: str
    digest: str


class Experiment(_Row, frozen=True, kw_only=True):
    """A row of `chaos_experiment`; `evidence` is None if it cannot be read as JSON."""

    id: str
    scenario: str
    status: str
    started_at_us: int
    healed_at_us: int | None
    ended_at_us: int | None
    evidence: dict[str, Any] | None


class Moment(_Row, frozen=True, kw_only=True):
    """When the rows were read, and when the last fault ended, by the database's clock.

    Attributes:
        now_us: When the snapshot was taken.
        last_fault_us: When the newest known fault was healed; None if none is known.
        is_broken: Whether a fault is not healed yet.
        settle_us: How long after a fault everything may take.
    """

    now_us: int
    last_fault_us: int | None = None
    is_broken: bool = False
    settle_us: int = 60_000_000

    def is_quiet_since(self, at_us: int) -> bool:
        """Whether more than the settling time has gone since `at_us` and since the last fault."""
        return self.now_us - max(at_us, self.last_fault_us or 0) > self.settle_us
