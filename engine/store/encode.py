"""A group as the arguments of `commit_group_rows`: one array of rows for each kind of thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odin.core.execution import due_us, pack_pending

if TYPE_CHECKING:
    from odin.core.execution import Execution

    from .group import Group


def encode_group(group: Group) -> list[object]:
    """Return the arguments of `commit_group_rows`, in its order.

    Raises:
        ValueError: something belongs to a shard that `group.terms` does not name: it would be
            neither written nor reported as refused.
    """
    terms = dict(sorted(group.terms.items()))
    _check_shards(group, terms)
    # Of two delays of one row, sent twice while the group waited, Postgres would take either.
    delays = {(row.shard_id, row.outbox_id): row for row in group.outbox_delays}
    return [
        group.incarnation,
        list(terms),
        list(terms.values()),
        [_image(x) for x in group.updates.values()],
        [_image(x) + _start(x) for x in group.inserts.values()],
        _events(group, terms),
        [(row.shard_id, row.destination, row.body) for row in group.outbox],
        [shard_id for shard_id, _ in group.outbox_deletes],
        [outbox_id for _, outbox_id in group.outbox_deletes],
        [
            (row.shard_id, row.outbox_id, row.publish_count, row.next_publish_us)
            for row in delays.values()
        ],
        _requests(group),
    ]


def _image(x: Execution) -> tuple[object, ...]:
    """Return the row of `execution_image`."""
    return (
        x.shard_id,
        x.run_id,
        x.status,
        x.next_event_id,
        x.state_token,
        x.task_token,
        x.build_id,
        x.closed_us,
        x.last_event_us,
        due_us(x),
        x.run_deadline_us,
        x.execution_deadline_us,
        x.has_scheduled_task,
        x.cancel_requested,
        x.last_message_event_id,
        x.last_visible_event_id,
        x.signal_count,
        x.history_bytes,
        x.memo,
        x.search_attributes,
        pack_pending(x),
    )


def _start(x: Execution) -> tuple[object, ...]:
    """Return what `execution_start` has after the image."""
    return (
        x.namespace,
        x.workflow_id,
        x.first_run_id,
        x.workflow_type,
        x.task_queue,
        x.origin,
        x.started_us,
        x.task_timeout_ms,
        x.parent,
    )


def _events(group: Group, terms: dict[int, int]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for write in group.events:
        event = write.event
        rows.append(
            (
                write.shard_id,
                write.run_id,
                event.event_id,
                event.type,
                event.recorded_at_us,
                terms[write.shard_id],
                event.attributes,
            )
        )
    return rows


def _requests(group: Group) -> list[tuple[object, ...]]:
    return [
        (
            row.shard_id,
            row.namespace,
            row.workflow_id,
            row.request_id,
            row.kind,
            row.run_id,
            row.event_id,
            row.body_hash,
        )
        for row in group.requests
    ]


def _check_shards(group: Group, terms: dict[int, int]) -> None:
    used = [x.shard_id for x in group.updates.values()]
    used += [x.shard_id for x in group.inserts.values()]
    used += [write.shard_id for write in group.events]
    used += [row.shard_id for row in group.outbox]
    used += [shard_id for shard_id, _ in group.outbox_deletes]
    used += [row.shard_id for row in group.outbox_delays]
    used += [row.shard_id for row in group.requests]
    unknown = set(used) - terms.keys()
    if unknown:
        raise ValueError(f"the group has no terms for the shards {sorted(unknown)}")
