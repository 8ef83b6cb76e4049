"""Rows of the `proof_*` queries as the rows that a proof is judged on: the order of the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odin.proof.rows import (
    EffectRow,
    EventRow,
    ExecutionRow,
    OutboxRow,
    RequestRow,
    TermRow,
    unpacked_attributes,
    unpacked_list,
)

if TYPE_CHECKING:
    import asyncpg


def execution_row(row: asyncpg.Record) -> ExecutionRow:
    """Return a row of `execution`."""
    return ExecutionRow(
        shard_id=row[0],
        run_id=row[1],
        namespace=row[2],
        workflow_id=row[3],
        first_run_id=row[4],
        workflow_type=row[5],
        task_queue=row[6],
        status=row[7],
        next_event_id=row[8],
        started_at_us=row[9],
        closed_at_us=row[10],
        last_event_at_us=row[11],
        due_at_us=row[12],
        has_task=row[13],
        signal_count=row[14],
        history_bytes=row[15],
        pending=unpacked_list(row[16]),
    )


def event_row(row: asyncpg.Record) -> EventRow:
    """Return a row of `event`."""
    attributes, damage = unpacked_attributes(row[8])
    return EventRow(
        shard_id=row[0],
        run_id=row[1],
        event_id=row[2],
        type=row[3],
        recorded_at_us=row[4],
        range_id=row[5],
        txid=row[6],
        commit_at_us=row[7],
        attributes=attributes,
        damage=damage,
    )


def term_row(row: asyncpg.Record) -> TermRow:
    """Return a row of `shard_term`."""
    return TermRow(
        shard_id=row[0],
        range_id=row[1],
        incarnation=row[2],
        node_id=row[3],
        what=row[4],
        at_us=row[5],
        txid=row[6],
        commit_at_us=row[7],
    )


def request_row(row: asyncpg.Record) -> RequestRow:
    """Return a row of `request`."""
    return RequestRow(
        shard_id=row[0],
        namespace=row[1],
        workflow_id=row[2],
        request_id=row[3],
        kind=row[4],
        run_id=row[5],
        event_id=row[6],
        body_hash=row[7],
        created_at_us=row[8],
    )


def outbox_row(row: asyncpg.Record) -> OutboxRow:
    """Return a row of `outbox`."""
    return OutboxRow(
        shard_id=row[0],
        id=row[1],
        destination=row[2],
        entry=unpacked_list(row[3]),
        created_at_us=row[4],
        publish_count=row[5],
        next_publish_at_us=row[6],
    )


def effect_row(row: asyncpg.Record) -> EffectRow:
    """Return a row of `mock_ledger`."""
    return EffectRow(
        seq=row[0],
        service=row[1],
        kind=row[2],
        order_id=row[3],
        idempotency_key=row[4],
        amount_cents=row[5],
        body_hash=row[6],
        at_us=row[7],
    )
