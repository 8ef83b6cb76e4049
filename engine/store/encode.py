"""A group as the arguments of `commit_group`: one array per column, so that one call carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from odin.core.execution import due_us, pack_pending

if TYPE_CHECKING:
    from odin.core.execution import Execution

    from .group import Group

_Value = TypeVar("_Value")


def encode_group(group: Group) -> list[object]:
    """Return the arguments of `commit_group`, in its order.

    Raises:
        ValueError: something belongs to a shard that `group.terms` does not name: it would be
            neither written nor reported as refused.
    """
    terms = dict(sorted(group.terms.items()))
    inserted = list(group.inserts.values())
    arguments: list[object] = [
        group.incarnation,
        list(terms),
        list(terms.values()),
        len(group.updates),
        *_images([*group.updates.values(), *inserted]),
        *_starts(inserted),
        *_events(group, terms),
        *_outbox(group),
        *_requests(group),
    ]
    _check_shards(group, terms)
    return arguments


def _images(executions: list[Execution]) -> list[object]:
    return [
        [x.shard_id for x in executions],
        [x.run_id for x in executions],
        [x.status for x in executions],
        [x.next_event_id for x in executions],
        [x.state_token for x in executions],
        [x.task_token for x in executions],
        [x.build_id for x in executions],
        _sparse([x.closed_us for x in executions]),
        [x.last_event_us for x in executions],
        [due_us(x) for x in executions],
        _sparse([x.run_deadline_us for x in executions]),
        _sparse([x.execution_deadline_us for x in executions]),
        [x.has_scheduled_task for x in executions],
        [x.cancel_requested for x in executions],
        [x.last_message_event_id for x in executions],
        [x.last_visible_event_id for x in executions],
        [x.signal_count for x in executions],
        [x.history_bytes for x in executions],
        _sparse([x.memo for x in executions]),
        _sparse([x.search_attributes for x in executions]),
        [pack_pending(x) for x in executions],
    ]


def _starts(executions: list[Execution]) -> list[object]:
    return [
        [x.namespace for x in executions],
        [x.workflow_id for x in executions],
        [x.first_run_id for x in executions],
        [x.workflow_type for x in executions],
        [x.task_queue for x in executions],
        [x.origin for x in executions],
        [x.started_us for x in executions],
        [x.task_timeout_ms for x in executions],
        _sparse([x.parent for x in executions]),
    ]


def _sparse(column: list[_Value | None]) -> list[_Value | None]:
    """Return the column, or nothing of it if it holds nothing: a missing value arrives as null."""
    return column if any(value is not None for value in column) else []


def _events(group: Group, terms: dict[int, int]) -> list[object]:
    writes = group.events
    events = [write.event for write in writes]
    return [
        [write.shard_id for write in writes],
        [write.run_id for write in writes],
        [event.event_id for event in events],
        [event.type for event in events],
        [event.recorded_at_us for event in events],
        [terms.get(write.shard_id) for write in writes],
        [event.attributes for event in events],
    ]


def _outbox(group: Group) -> list[object]:
    inserts, deletes, delays = group.outbox, group.outbox_deletes, group.outbox_delays
    return [
        [row.shard_id for row in inserts],
        [row.destination for row in inserts],
        [row.body for row in inserts],
        [shard_id for shard_id, _ in deletes],
        [outbox_id for _, outbox_id in deletes],
        [row.shard_id for row in delays],
        [row.outbox_id for row in delays],
        [row.publish_count for row in delays],
        [row.next_publish_us for row in delays],
    ]


def _requests(group: Group) -> list[object]:
    requests = group.requests
    return [
        [row.shard_id for row in requests],
        [row.namespace for row in requests],
        [row.workflow_id for row in requests],
        [row.request_id for row in requests],
        [row.kind for row in requests],
        [row.run_id for row in requests],
        [row.event_id for row in requests],
        [row.body_hash for row in requests],
    ]


def _check_shards(group: Group, terms: dict[int, int]) -> None:
    used = {x.shard_id for x in group.updates.values()}
    used.update(x.shard_id for x in group.inserts.values())
    used.update(write.shard_id for write in group.events)
    used.update(row.shard_id for row in group.outbox)
    used.update(shard_id for shard_id, _ in group.outbox_deletes)
    used.update(row.shard_id for row in group.outbox_delays)
    used.update(row.shard_id for row in group.requests)
    if not used <= terms.keys():
        raise ValueError(f"the group has no terms for the shards {sorted(used - terms.keys())}")
