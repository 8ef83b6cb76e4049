"""What engines read of executions, events, outbox and requests."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from .statements import Context, Row, Statement, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .tables import EventRow, ExecutionRow, OutboxRow

_LOADED: Final = 28


def _loaded(row: ExecutionRow | None) -> list[Row]:
    return [] if row is None else [row.loaded()]


def _load_execution(context: Context) -> list[Row]:
    shard_id, run_id = context.arguments
    return _loaded(context.tables.execution.get((shard_id, run_id)))


def _load_many(context: Context) -> list[Row]:
    found = map(context.tables.execution.get, zip(*context.arguments, strict=True))
    return [row.loaded() for row in found if row is not None]


def _load_open(context: Context) -> list[Row]:
    return _loaded(context.tables.open_run(*context.arguments))


def _load_latest(context: Context) -> list[Row]:
    return _loaded(context.tables.latest_run(*context.arguments))


def _load_request(context: Context) -> list[Row]:
    return _request(context, tuple(context.arguments))


def _request(context: Context, key: tuple[Any, ...]) -> list[Row]:
    row = context.tables.request.get(key)
    return [] if row is None else [(row.kind, row.run_id, row.event_id, row.body_hash)]


def _lookup_many(context: Context) -> list[Row]:
    rows: list[Row] = []
    tables = context.tables
    for shard_id, namespace, workflow_id, run_id, request_id in zip(
        *context.arguments, strict=True
    ):
        answered = _request(context, (shard_id, namespace, workflow_id, request_id))
        if run_id is None:
            found = tables.latest_run(shard_id, namespace, workflow_id)
        else:
            found = tables.execution.get((shard_id, run_id))
            if found and (found.namespace, found.workflow_id) != (namespace, workflow_id):
                found = None
        rows.append(
            (answered[0] if answered else (None,) * 4)
            + ((None,) * _LOADED if found is None else found.loaded())
        )
    return rows


def _page(rows: Iterable[EventRow], limit: int, bytes_max: int) -> list[Row]:
    page: list[Row] = []
    size = 0
    for row in list(rows)[:limit]:
        size += len(row.attributes)
        if page and size > bytes_max:
            break
        page.append((row.event_id, row.type, row.recorded_us, row.attributes))
    return page


def _events(context: Context) -> list[Row]:
    shard_id, run_id, after, upto, limit, bytes_max = context.arguments
    events = context.tables.event.get((shard_id, run_id), {})
    wanted = (events[number] for number in sorted(events) if after < number <= upto)
    return _page(wanted, limit, bytes_max)


def _events_newest_first(context: Context) -> list[Row]:
    shard_id, run_id, before, limit, bytes_max = context.arguments
    events = context.tables.event.get((shard_id, run_id), {})
    wanted = (events[number] for number in sorted(events, reverse=True) if number < before)
    return _page(wanted, limit, bytes_max)


def _due_before(context: Context) -> list[Row]:
    shard_ids, us, after_us, after_run, limit = context.arguments
    wanted, after = set(shard_ids), (after_us, after_run)
    due = (
        (row.due_us, row.run_id, row.shard_id)
        for row in context.tables.execution.values()
        if row.due_us is not None
        and row.due_us <= us
        and row.shard_id in wanted
        and (row.due_us, row.run_id) > after
    )
    return [(shard, run_id, due_us) for due_us, run_id, shard in heapq.nsmallest(limit, due)]


def _scheduled_tasks(context: Context) -> list[Row]:
    shard_id, after, limit = context.arguments
    runs = (
        row.run_id
        for row in context.tables.execution.values()
        if row.has_task and row.shard_id == shard_id and row.run_id > after
    )
    return [(run_id,) for run_id in heapq.nsmallest(limit, runs)]


def _outbox_row(row: OutboxRow) -> Row:
    return (row.shard_id, row.id, row.destination, row.body, row.publish_count, row.next_publish_us)


def _outbox_due(context: Context) -> list[Row]:
    shard_ids, us, limit = context.arguments
    wanted = set(shard_ids)
    due = (
        row
        for row in context.tables.outbox.values()
        if row.next_publish_us <= us and row.shard_id in wanted
    )
    first = heapq.nsmallest(limit, due, key=lambda row: (row.next_publish_us, row.id))
    return [_outbox_row(row) for row in first]


def _outbox_all(context: Context) -> list[Row]:
    shard_id, after, limit = context.arguments
    rows = (
        row for row in context.tables.outbox.values() if row.shard_id == shard_id and row.id > after
    )
    return [_outbox_row(row) for row in heapq.nsmallest(limit, rows, key=lambda row: row.id)]


def _outbox_counts(context: Context) -> list[Row]:
    return list(Counter(shard_id for shard_id, _ in context.tables.outbox).items())


def _open_counts(context: Context) -> list[Row]:
    rows = context.tables.execution.values()
    return list(Counter(row.shard_id for row in rows if row.status == "running").items())


def _list_executions(context: Context) -> list[Row]:
    namespace, *equal, from_us, before_us, cursor_us, cursor_run, limit = context.arguments
    names = ("status", "workflow_type", "shard_id", "workflow_id", "origin")
    filters = [(name, value) for name, value in zip(names, equal, strict=True) if value is not None]
    found = [
        row
        for row in context.tables.execution.values()
        if row.namespace == namespace
        and all(getattr(row, name) == value for name, value in filters)
        and (from_us is None or row.started_us >= from_us)
        and (before_us is None or row.started_us < before_us)
        and (cursor_us is None or (row.started_us, row.run_id) < (cursor_us, cursor_run))
    ]
    found.sort(key=lambda row: (row.started_us, row.run_id), reverse=True)
    return [
        (
            row.shard_id, row.namespace, row.workflow_id, row.run_id, row.workflow_type,
            row.task_queue, row.origin, row.status, row.started_us, row.closed_us,
            row.next_event_id - 1,
        )
        for row in found[:limit]
    ]  # fmt: skip


def _table_estimates(context: Context) -> list[Row]:
    tables = context.tables
    return [
        ("execution", len(tables.execution)),
        ("event", sum(map(len, tables.event.values()))),
        ("outbox", len(tables.outbox)),
        ("request", len(tables.request)),
    ]


def _reading(read: Callable[[Context], list[Row]]) -> Statement:
    def run(context: Context) -> tuple[list[Row], list[Write]]:
        return read(context), []

    return Statement(run, reads_only=True)


STATEMENTS: Final[dict[str, Statement]] = {
    "load_execution": _reading(_load_execution),
    "load_many": _reading(_load_many),
    "load_open": _reading(_load_open),
    "load_latest": _reading(_load_latest),
    "load_request": _reading(_load_request),
    "lookup_many": _reading(_lookup_many),
    "events": _reading(_events),
    "events_newest_first": _reading(_events_newest_first),
    "due_before": _reading(_due_before),
    "scheduled_tasks": _reading(_scheduled_tasks),
    "outbox_due": _reading(_outbox_due),
    "outbox_all": _reading(_outbox_all),
    "outbox_counts": _reading(_outbox_counts),
    "open_counts": _reading(_open_counts),
    "list_executions": _reading(_list_executions),
    "table_estimates": _reading(_table_estimates),
}
