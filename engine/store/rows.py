"""A row of `execution` as an `Execution`: the one place that knows the order of the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import msgspec

from odin.core.events import HistoryEvent
from odin.core.execution import Execution, Pending, unpack_pending, unpack_values
from odin.errors import OdinError

from .errors import DamagedRunError

if TYPE_CHECKING:
    import asyncpg

    Row: TypeAlias = asyncpg.Record | tuple[Any, ...]


def execution_of(row: Row) -> Execution:
    """Return the execution that a row of the `load_*` queries holds.

    Raises:
        DamagedRunError: What is packed in the row cannot be read.
    """
    pending = _unpacked(row)
    return Execution(
        shard_id=row[0],
        namespace=row[1],
        workflow_id=row[2],
        run_id=row[3],
        first_run_id=row[4],
        workflow_type=row[5],
        task_queue=row[6],
        origin=row[7],
        build_id=row[8],
        status=row[9],
        next_event_id=row[10],
        state_token=row[11],
        task_token=row[12],
        started_us=row[13],
        closed_us=row[14],
        last_event_us=row[15],
        run_deadline_us=row[16],
        execution_deadline_us=row[17],
        task_timeout_ms=row[18],
        cancel_requested=row[19],
        last_message_event_id=row[20],
        last_visible_event_id=row[21],
        signal_count=row[22],
        history_bytes=row[23],
        parent=row[24],
        memo=row[25],
        search_attributes=row[26],
        workflow_task=pending.workflow_task,
        activities=pending.activities,
        timers=pending.timers,
        reports=pending.reports,
    )


def execution_or_damage(row: Row) -> Execution | DamagedRunError:
    """Return the execution, or why it cannot be had: one bad row must not cost the others."""
    try:
        return execution_of(row)
    except DamagedRunError as error:
        return error


def _unpacked(row: Row) -> Pending:
    try:
        unpack_values(row[25])
        unpack_values(row[26])
        return unpack_pending(row[27])
    except (msgspec.MsgspecError, ValueError, RecursionError, OdinError) as error:
        # A policy that contradicts itself is an OdinError, text that is not UTF-8 a ValueError.
        raise DamagedRunError(row[0], row[3], str(error)) from error


def event_of(row: asyncpg.Record) -> HistoryEvent:
    """Return the event that a row of the `events*` queries holds."""
    return HistoryEvent(row[0], row[1], row[2], row[3])


def run_id_of(text: str) -> str | None:
    """Return the run id in its canonical form, or None for what cannot be the id of any run."""
    try:
        return str(UUID(text))
    except ValueError:
        return None
