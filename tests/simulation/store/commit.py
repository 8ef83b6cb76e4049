"""The group commit: `commit_group_rows` of the schema, and what retention deletes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .statements import SHARED, Context, Lock, Row, Statement, Write, error
from .tables import EventRow, ExecutionRow, OutboxRow, RequestRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .tables import Tables

_TWO_MINUTES_US: Final = 120_000_000
_FIRST_PUBLISH_US: Final = 5_000_000
_DAY_US: Final = 86_400_000_000
_BIGINT: Final = range(-(2**63), 2**63)


def _matching(context: Context) -> list[int]:
    me, shard_ids, ranges = context.arguments[:3]
    return [
        shard_id
        for shard_id, range_id in sorted(zip(shard_ids, ranges, strict=True))
        if (row := context.tables.shard.get(shard_id)) is not None
        and (row.owner, row.range_id) == (me, range_id)
    ]


def _locks(context: Context) -> list[Lock]:
    return [Lock(("shard", shard_id), SHARED) for shard_id in _matching(context)]


def _judge_terms(context: Context) -> None:
    """Leave out the shards that another one took while this one waited for their rows."""
    context.held &= {("shard", shard_id) for shard_id in _matching(context)}


def _commit_group(context: Context) -> tuple[list[Row], list[Write]]:
    """Judge the terms, then check everything that Postgres would; the writes come with the commit.

    The terms were judged once the shards' rows were locked (`_judge_terms`).
    """
    held = {key[1] for key in context.held if isinstance(key, tuple) and key[0] == "shard"}
    refused = [shard_id for shard_id in context.arguments[1] if shard_id not in held]
    if not held:
        return [(refused, [])], []
    group = _Group(context, held)
    group.update()
    group.insert()
    group.append_events()
    group.write_requests()
    outbox_ids = group.write_outbox()
    return [(refused, outbox_ids)], group.writes


class _Group:
    """One group as it is checked; what it changes is kept aside until it commits."""

    def __init__(self, context: Context, held: set[int]) -> None:
        self.tables: Tables = context.tables
        self.now_us = context.now_us
        self.arguments = context.arguments
        self.held = held
        self.writes: list[Write] = []
        self.closing: set[tuple[int, str]] = set()

    def _of_held(self, number: int) -> list[Any]:
        return [row for row in self.arguments[number] if row[0] in self.held]

    def update(self) -> None:
        images = self._of_held(3)
        found = []
        for image in images:
            row = self.tables.execution.get((image[0], image[1]))
            if row is not None and row.closed_us is None and row.next_event_id <= image[3]:
                found.append((row, image))
        for row, image in found:
            due_us, has_task = _due_us(row, image, self.now_us), _has_task(row, image, self.now_us)
            _check(image, due_us, has_task=has_task)
            if image[2] != "running":
                self.closing.add((image[0], image[1]))
            self.writes.append(partial(_apply, row, image, due_us, has_task=has_task))
        if len(found) != len(images):
            raise error("OD001", f"{len(found)} of {len(images)} executions were updated")

    def insert(self) -> None:
        opened: set[tuple[int, str, str]] = set()
        keys: set[tuple[int, str]] = set()
        for image in self._of_held(4):
            key, workflow = (image[0], image[1]), (image[0], image[21], image[22])
            _check(image, image[9], has_task=image[12])
            if key in keys or key in self.tables.execution:
                raise error("23505", "duplicate key value violates execution_pkey")
            if image[2] == "running":
                other = self.tables.open_run(*workflow)
                is_open = other is not None and (other.shard_id, other.run_id) not in self.closing
                if is_open or workflow in opened:
                    raise error("23505", "duplicate key value violates execution_open")
                opened.add(workflow)
            keys.add(key)
            row = _execution(image)
            self.writes.append(partial(self._insert_execution, row))

    def _insert_execution(self, row: ExecutionRow, _txid: int) -> None:
        self.tables.insert_execution(row)

    def append_events(self) -> None:
        rows = self._of_held(5)
        keys = Counter((row[0], row[1], row[2]) for row in rows)
        for shard_id, run_id, event_id, *_ in rows:
            known = self.tables.event.get((shard_id, run_id), {})
            if event_id in known or keys[shard_id, run_id, event_id] > 1:
                raise error("23505", "duplicate key value violates event_pkey")
            if event_id <= 0:
                raise error("23514", "event_id is not above 0")

        def write(txid: int) -> None:
            for shard_id, run_id, event_id, kind, recorded_us, range_id, attributes in rows:
                self.tables.event.setdefault((shard_id, run_id), {})[event_id] = EventRow(
                    shard_id, run_id, event_id, kind, recorded_us, range_id, txid, attributes
                )

        self.writes.append(write)

    def write_requests(self) -> None:
        rows: dict[tuple[int, str, str, str], RequestRow] = {}
        for shard_id, namespace, workflow_id, request_id, *acknowledged in self._of_held(10):
            key = (shard_id, namespace, workflow_id, request_id)
            if key in rows or key in self.tables.request:
                raise error("23505", "duplicate key value violates request_pkey")
            kind, run_id, event_id, body_hash = acknowledged
            rows[key] = RequestRow(*key, kind, run_id, event_id, body_hash, self.now_us)
        self.writes.append(lambda _txid: self.tables.request.update(rows))

    def write_outbox(self) -> list[int]:
        """Draw ids for all rows, those of refused shards too; then insert, delete and delay."""
        tables, first = self.tables, self.tables.outbox_id + 1
        rows = self.arguments[6]
        ids = list(range(first, first + len(rows)))
        tables.outbox_id += len(rows)
        next_us = self.now_us + _FIRST_PUBLISH_US
        inserted = [
            OutboxRow(shard_id, outbox_id, destination, body, self.now_us, 0, next_us)
            for outbox_id, (shard_id, destination, body) in zip(ids, rows, strict=True)
            if shard_id in self.held
        ]

        def write(_txid: int) -> None:
            for row in inserted:
                tables.outbox[row.shard_id, row.id] = row
            self._change_outbox()

        self.writes.append(write)
        return ids

    def _change_outbox(self) -> None:
        gone_shards, gone_ids = self.arguments[7:9]
        for key in zip(gone_shards, gone_ids, strict=True):
            if key[0] in self.held:
                self.tables.outbox.pop(key, None)
        for shard_id, outbox_id, publish_count, next_us in self._of_held(9):
            row = self.tables.outbox.get((shard_id, outbox_id))
            if row is not None:
                row.publish_count, row.next_publish_us = publish_count, next_us


def _due_us(row: ExecutionRow, image: Sequence[Any], now_us: int) -> int | None:
    """Return the bound to keep: the old one while it is ahead and not much too early."""
    old, new = row.due_us, image[9]
    if (
        old is not None
        and new is not None
        and old <= new
        and old > now_us
        and old + _TWO_MINUTES_US >= new
    ):
        return old
    return new  # type: ignore[no-any-return] # a column of a row


def _has_task(row: ExecutionRow, image: Sequence[Any], now_us: int) -> bool:
    is_due_soon = image[9] is not None and image[9] < now_us + _TWO_MINUTES_US
    return bool(image[12] or (row.has_task and is_due_soon))


def _check(image: Sequence[Any], due_us: int | None, *, has_task: bool) -> None:
    """Raise what the table's constraints and types would."""
    is_running = image[2] == "running"
    if is_running != (image[7] is None) or image[3] <= 1:
        raise error("23514", "violates execution_closes_once")
    if not is_running and (due_us is not None or has_task):
        raise error("23514", "violates execution_closed_waits_for_nothing")
    if image[4] not in _BIGINT or image[5] not in _BIGINT:
        raise error("22003", "bigint out of range")


def _apply(
    row: ExecutionRow, image: Sequence[Any], due_us: int | None, _txid: int, *, has_task: bool
) -> None:
    (
        _shard, _run, row.status, row.next_event_id, row.state_token, row.task_token, row.build_id,
        row.closed_us, row.last_event_us, _due, row.run_deadline_us, row.execution_deadline_us,
        _has, row.cancel_requested, row.last_message_event_id, row.last_visible_event_id,
        row.signal_count, row.history_bytes, row.memo, row.search_attributes, row.pending,
    ) = image  # fmt: skip
    row.due_us, row.has_task = due_us, has_task


def _execution(image: Sequence[Any]) -> ExecutionRow:
    (
        shard_id, run_id, status, next_event_id, state_token, task_token, build_id, closed_us,
        last_event_us, due_us, run_deadline_us, execution_deadline_us, has_task, cancel_requested,
        last_message, last_visible, signals, history_bytes, memo, search_attributes, pending,
        namespace, workflow_id, first_run_id, workflow_type, task_queue, origin, started_us,
        task_timeout_ms, parent,
    ) = image  # fmt: skip
    return ExecutionRow(
        shard_id, namespace, workflow_id, run_id, first_run_id, workflow_type, task_queue, origin,
        build_id, status, next_event_id, state_token, task_token, started_us, closed_us,
        last_event_us, run_deadline_us, execution_deadline_us, task_timeout_ms, cancel_requested,
        last_message, last_visible, signals, history_bytes, parent, memo, search_attributes,
        pending, due_us, has_task,
    )  # fmt: skip


# --- retention ------------------------------------------------------------------------------------


def _delete_closed(context: Context) -> tuple[list[Row], list[Write]]:
    """What `delete_closed_runs` does: the runs first, then the requests whose end has come."""
    _, shard_ids, _, before_us, limit = context.arguments
    held = [one for one in shard_ids if ("shard", one) in context.held]
    runs = _closed_before(context.tables, held, before_us, limit)

    def write(_txid: int) -> None:
        tables = context.tables
        for key, ends_us in _last_closings(tables, runs):
            for row in tables.request.values():
                if (row.shard_id, row.namespace, row.workflow_id) == key and row.expires_us is None:
                    row.expires_us = ends_us
        for shard_id, run_id in runs:
            tables.event.pop((shard_id, run_id), None)
            tables.delete_execution(shard_id, run_id)
        for shard_id in held:
            _delete_requests(tables, shard_id, limit, context.now_us)

    refused = [one for one in shard_ids if one not in held]
    return [(refused, [one for one, _ in runs], [run_id for _, run_id in runs])], [write]


def _closed_before(
    tables: Tables, held: Sequence[int], before_us: int, limit: int
) -> list[tuple[int, str]]:
    waiting = {
        row.shard_id for row in tables.outbox.values() if row.destination.startswith("shard:")
    }
    rows = sorted(
        (row.closed_us, row.run_id, row.shard_id)
        for row in tables.execution.values()
        if row.shard_id in held
        and row.shard_id not in waiting
        and row.closed_us is not None
        and row.closed_us < before_us
    )
    return [(shard_id, run_id) for _, run_id, shard_id in rows[:limit]]


def _last_closings(
    tables: Tables, runs: Iterable[tuple[int, str]]
) -> list[tuple[tuple[int, str, str], int]]:
    """Return the workflow ids of which no other run is left, and when their requests end."""
    gone = {run_id for _, run_id in runs}
    return [
        (key, max(row.closed_us or 0 for row in rows) + _DAY_US)
        for key, rows in tables.by_workflow.items()
        if rows and gone.issuperset(row.run_id for row in rows)
    ]


def _delete_requests(tables: Tables, shard_id: int, limit: int, now_us: int) -> None:
    over = sorted(
        (row.expires_us, key)
        for key, row in tables.request.items()
        if key[0] == shard_id and row.expires_us is not None and row.expires_us < now_us
    )
    for _, key in over[:limit]:
        del tables.request[key]


STATEMENTS: Final[dict[str, Statement]] = {
    "commit_group": Statement(_commit_group, _locks, judge=_judge_terms),
    "delete_closed": Statement(_delete_closed, _locks, judge=_judge_terms),
}
