"""What a workflow may know of itself. Authors reach it as `odin.workflow.info()`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from odin.core.payload import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odin.core.events import ParentRef
    from odin.core.run import Run

CONTINUE_AS_NEW_SUGGESTED_EVENTS = 4_096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(time_us: int) -> datetime:
    """Return microseconds since 1970 as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


@dataclass(frozen=True, slots=True)
class Info:
    """Who the running workflow is, and how far its history has come."""

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    first_execution_run_id: str
    continued_run_id: str | None
    start_time: datetime
    execution_timeout: timedelta | None
    run_timeout: timedelta | None
    task_timeout: timedelta
    parent: ParentRef | None
    origin: str
    memo: Mapping[str, Any]
    search_attributes: Mapping[str, Any]
    history_length: int

    def get_current_history_length(self) -> int:
        """Return how many events the workflow had when this was asked for."""
        return self.history_length

    def is_continue_as_new_suggested(self) -> bool:
        """Whether the history is so long that the run should continue as new."""
        return self.history_length >= CONTINUE_AS_NEW_SUGGESTED_EVENTS


def info_of(run: Run) -> Info:
    """Return the info of a run."""
    known = run.info
    return Info(
        namespace=known.namespace,
        workflow_id=known.workflow_id,
        run_id=known.run_id,
        workflow_type=known.workflow_type,
        task_queue=known.task_queue,
        first_execution_run_id=known.first_run_id,
        continued_run_id=known.continued_from_run_id,
        start_time=instant(known.start_time_us),
        execution_timeout=_span(known.execution_timeout_ms),
        run_timeout=_span(known.run_timeout_ms),
        task_timeout=timedelta(milliseconds=known.task_timeout_ms),
        parent=known.parent,
        origin=known.origin,
        memo={key: decode(value) for key, value in known.memo.items()},
        search_attributes={key: decode(value) for key, value in known.search_attributes.items()},
        history_length=run.seen,
    )


def _span(duration_ms: int | None) -> timedelta | None:
    return None if duration_ms is None else timedelta(milliseconds=duration_ms)
