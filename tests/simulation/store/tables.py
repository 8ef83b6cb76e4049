"""The tables of `schema/`, as rows in memory. Instants are microseconds since 1970.

What stands here has committed. Nothing but a commit changes it, and a commit changes it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class NodeRow:
    """A row of `node`."""

    incarnation: str
    node_id: str
    address: str
    state: str
    lease_until_us: int
    started_us: int


@dataclass(slots=True)
class ShardRow:
    """A row of `shard`."""

    shard_id: int
    range_id: int = 0
    owner: str | None = None
    heir: str | None = None
    released_us: int | None = None


@dataclass(frozen=True, slots=True)
class TermRow:
    """A row of `shard_term`."""

    shard_id: int
    range_id: int
    happening: str
    incarnation: str
    node_id: str
    at_us: int
    txid: int


@dataclass(slots=True)
class ExecutionRow:
    """A row of `execution`."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str
    first_run_id: str
    workflow_type: str
    task_queue: str
    origin: str
    build_id: str
    status: str
    next_event_id: int
    state_token: int
    task_token: int
    started_us: int
    closed_us: int | None
    last_event_us: int
    run_deadline_us: int | None
    execution_deadline_us: int | None
    task_timeout_ms: int
    cancel_requested: bool
    last_message_event_id: int
    last_visible_event_id: int
    signal_count: int
    history_bytes: int
    parent: bytes | None
    memo: bytes | None
    search_attributes: bytes | None
    pending: bytes
    due_us: int | None
    has_task: bool

    def loaded(self) -> tuple[object, ...]:
        """Return the columns of the `load_*` queries."""
        return (
            self.shard_id, self.namespace, self.workflow_id, self.run_id, self.first_run_id,
            self.workflow_type, self.task_queue, self.origin, self.build_id, self.status,
            self.next_event_id, self.state_token, self.task_token, self.started_us,
            self.closed_us, self.last_event_us, self.run_deadline_us,
            self.execution_deadline_us, self.task_timeout_ms, self.cancel_requested,
            self.last_message_event_id, self.last_visible_event_id, self.signal_count,
            self.history_bytes, self.parent, self.memo, self.search_attributes, self.pending,
        )  # fmt: skip


@dataclass(slots=True)
class EventRow:
    """A row of `event`."""

    shard_id: int
    run_id: str
    event_id: int
    type: str
    recorded_us: int
    range_id: int
    txid: int
    attributes: bytes


@dataclass(slots=True)
class OutboxRow:
    """A row of `outbox`."""

    shard_id: int
    id: int
    destination: str
    body: bytes
    created_us: int
    publish_count: int
    next_publish_us: int


@dataclass(slots=True)
class RequestRow:
    """A row of `request`."""

    shard_id: int
    namespace: str
    workflow_id: str
    request_id: str
    kind: str
    run_id: str
    event_id: int
    body_hash: bytes
    created_us: int
    expires_us: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A row of `dead_letter`."""

    shard_id: int
    kind: str
    run_id: str
    number: int
    attempt: int
    reason: str


@dataclass(slots=True)
class Tables:
    """All tables, by their primary keys.

    Attributes:
        cluster: (shard_count, mode), once there is a cluster.
        event: (shard, run) to its events by id, in the order in which they were written.
        by_workflow: (shard, namespace, workflow id) to its runs, in the order of their insertion.
        outbox_id: The sequence; no rollback takes a number back.
    """

    cluster: tuple[int, str] | None = None
    node: dict[str, NodeRow] = field(default_factory=dict)
    shard: dict[int, ShardRow] = field(default_factory=dict)
    shard_term: dict[tuple[int, int, str], TermRow] = field(default_factory=dict)
    execution: dict[tuple[int, str], ExecutionRow] = field(default_factory=dict)
    event: dict[tuple[int, str], dict[int, EventRow]] = field(default_factory=dict)
    outbox: dict[tuple[int, int], OutboxRow] = field(default_factory=dict)
    request: dict[tuple[int, str, str, str], RequestRow] = field(default_factory=dict)
    dead_letter: list[DeadLetterRow] = field(default_factory=list)
    by_workflow: dict[tuple[int, str, str], list[ExecutionRow]] = field(default_factory=dict)
    outbox_id: int = 0

    def insert_execution(self, row: ExecutionRow) -> None:
        """Add a run, to its index too."""
        self.execution[row.shard_id, row.run_id] = row
        key = (row.shard_id, row.namespace, row.workflow_id)
        self.by_workflow.setdefault(key, []).append(row)

    def delete_execution(self, shard_id: int, run_id: str) -> None:
        """Take a run out, with its place in the index."""
        row = self.execution.pop((shard_id, run_id))
        runs = self.by_workflow[shard_id, row.namespace, row.workflow_id]
        runs.remove(row)
        if not runs:
            del self.by_workflow[shard_id, row.namespace, row.workflow_id]

    def open_run(self, shard_id: int, namespace: str, workflow_id: str) -> ExecutionRow | None:
        """Return the open run of a workflow id."""
        for row in self.by_workflow.get((shard_id, namespace, workflow_id), ()):
            if row.status == "running":
                return row
        return None

    def latest_run(self, shard_id: int, namespace: str, workflow_id: str) -> ExecutionRow | None:
        """Return the open run of a workflow id, else the one that started last."""
        found = self.open_run(shard_id, namespace, workflow_id)
        runs = self.by_workflow.get((shard_id, namespace, workflow_id))
        if found is None and runs:
            return max(runs, key=lambda row: (row.started_us, row.run_id))
        return found

    @property
    def events(self) -> list[EventRow]:
        """All events: run by run, each run's by their ids."""
        return [rows[event_id] for rows in self.event.values() for event_id in sorted(rows)]
