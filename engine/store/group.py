"""What one commit writes.

The value that the shard writer gathers and the store writes in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from odin.core.events import HistoryEvent
from odin.core.execution import Execution


class EventWrite(msgspec.Struct, frozen=True):
    """One event to append."""

    shard_id: int
    run_id: str
    event: HistoryEvent


class OutboxInsert(msgspec.Struct, frozen=True):
    """One task on its way out.

    `destination` is `<kind>:<task_queue>` ("w:default"), `body` a msgpack TaskEntry.
    """

    shard_id: int
    destination: str
    body: bytes


class OutboxDelay(msgspec.Struct, frozen=True):
    """A row that was not confirmed: when it may be published again."""

    shard_id: int
    outbox_id: int
    publish_count: int
    next_publish_us: int


class RequestWrite(msgspec.Struct, frozen=True):
    """What was acknowledged to a client, so that the same request id gets the same acceptance."""

    shard_id: int
    namespace: str
    workflow_id: str
    request_id: str
    kind: str
    run_id: str
    event_id: int
    body_hash: bytes


@dataclass(slots=True)
class Group:
    """Decisions of any of the node's shards that commit together, net: one image per execution.

    `terms` maps every shard of the group to the range_id under which it is written.
    """

    incarnation: str
    terms: dict[int, int] = field(default_factory=dict)
    inserts: dict[str, Execution] = field(default_factory=dict)
    updates: dict[str, Execution] = field(default_factory=dict)
    events: list[EventWrite] = field(default_factory=list)
    outbox: list[OutboxInsert] = field(default_factory=list)
    outbox_deletes: list[tuple[int, int]] = field(default_factory=list)
    outbox_delays: list[OutboxDelay] = field(default_factory=list)
    requests: list[RequestWrite] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committed:
    """A group has committed. Nothing of the `refused` shards was written: their terms are over.

    `outbox_ids` stand in the order of `group.outbox`; 0 for a row of a refused shard.
    """

    refused: frozenset[int]
    outbox_ids: tuple[int, ...]
