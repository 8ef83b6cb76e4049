"""What the store returns besides executions and events."""

from __future__ import annotations

from dataclasses import dataclass

from odin.core.ownership import NodeView, ShardView


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What every engine of a cluster must agree on."""

    shard_count: int
    mode: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """A lease as the database granted it, with the database's clock at that moment."""

    db_now_us: int
    lease_until_us: int


@dataclass(frozen=True, slots=True)
class NodeIdTaken:
    """Another process that is not dead has the node_id; its lease tells how long to wait.

    If `lease_until_us` of the same incarnation has grown when asked again, that process lives.
    """

    incarnation: str
    db_now_us: int
    lease_until_us: int


@dataclass(frozen=True, slots=True)
class NodeRow(NodeView):
    """A node's row, with the address at which its peers reach it."""

    address: str = ""


@dataclass(frozen=True, slots=True)
class ShardRow(ShardView):
    """A shard's row, with the range of its newest term."""

    range_id: int = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes and shards as one statement saw them, and the database's clock then."""

    db_now_us: int
    nodes: tuple[NodeRow, ...]
    shards: tuple[ShardRow, ...]


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A task on its way out, as it is stored."""

    shard_id: int
    outbox_id: int
    destination: str
    body: bytes
    publish_count: int
    next_publish_us: int


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """What was acknowledged to a client under a request id."""

    kind: str
    run_id: str
    event_id: int
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class Lookup:
    """A request's run and its request id, to be looked up; a request id "" is nobody's."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """One line of a list of executions."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    origin: str
    status: str
    started_us: int
    closed_us: int | None
    history_length: int


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """What a list of executions is narrowed to; None leaves a field open. Times include `from`."""

    namespace: str = "default"
    status: str | None = None
    workflow_type: str | None = None
    workflow_id: str | None = None
    origin: str | None = None
    started_from_us: int | None = None
    started_before_us: int | None = None
