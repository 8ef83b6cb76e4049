"""What a client learns of executions: summaries, descriptions, histories."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from odin.core.events import Event, HistoryEvent, from_history


class WorkflowIDReusePolicy(StrEnum):
    """Whether an id whose last run is closed may be used again."""

    ALLOW_DUPLICATE = "allow_duplicate"
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    REJECT_DUPLICATE = "reject_duplicate"


class WorkflowIDConflictPolicy(StrEnum):
    """What a start does when a run of the id is open."""

    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


class WorkflowExecutionStatus(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TERMINATED = "terminated"
    TIMED_OUT = "timed_out"
    CONTINUED_AS_NEW = "continued_as_new"


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what the API answers; fields of newer engines are ignored."""


class FailureInfo(_Model, frozen=True, kw_only=True):
    """Why something failed, for people."""

    message: str
    kind: str = "application"
    type: str = ""
    stack_trace: str = ""
    source: str = ""
    cause: FailureInfo | None = None


class WorkflowExecution(_Model, frozen=True, kw_only=True):
    """One line of a list of runs."""

    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    status: WorkflowExecutionStatus
    started_at: datetime
    namespace: str = "default"
    closed_at: datetime | None = None
    history_length: int = 0
    origin: str = ""


class WorkflowTaskInfo(_Model, frozen=True, kw_only=True):
    """The workflow task of a run."""

    state: str = "none"
    number: int = 0
    attempt: int = 0
    failures: int = 0
    last_failure: FailureInfo | None = None
    next_attempt_at: datetime | None = None


class PendingActivityInfo(_Model, frozen=True, kw_only=True):
    """An activity that has not ended."""

    activity_id: str
    activity_type: str
    state: str
    attempt: int = 0
    maximum_attempts: int = 0
    scheduled_at: datetime | None = None
    started_at: datetime | None = None
    next_attempt_at: datetime | None = None
    worker: str = ""
    last_failure: FailureInfo | None = None
    cancel_requested: bool = False


class PendingTimerInfo(_Model, frozen=True, kw_only=True):
    """A timer that has not fired."""

    command_id: int
    fires_at: datetime


class OwnerInfo(_Model, frozen=True, kw_only=True):
    """Where a run lives."""

    shard_id: int
    range_id: int
    node_id: str = ""
    address: str = ""


class WorkflowExecutionDescription(WorkflowExecution, frozen=True, kw_only=True):
    """Everything about a run but its history."""

    first_run_id: str = ""
    history_bytes: int = 0
    signal_count: int = 0
    cancel_requested: bool = False
    build_id: str = ""
    owner: OwnerInfo | None = None
    workflow_task: WorkflowTaskInfo = WorkflowTaskInfo()
    pending_activities: tuple[PendingActivityInfo, ...] = ()
    pending_timers: tuple[PendingTimerInfo, ...] = ()
    failure: FailureInfo | None = None
    new_run_id: str | None = None
    input: tuple[Any, ...] = ()
    result: Any = None
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}


class ExecutionPage(_Model, frozen=True, kw_only=True):
    """Part of a list of runs."""

    items: tuple[WorkflowExecution, ...]
    next_cursor: str | None = None


class HistoryPage(msgspec.Struct, frozen=True, array_like=True):
    """Part of a history as it is stored."""

    run_id: str
    events: tuple[HistoryEvent, ...]
    next: int | None = None


class WorkflowHistory(msgspec.Struct, frozen=True):
    """The whole history of one run, exactly as it is stored."""

    workflow_id: str
    run_id: str
    events: tuple[HistoryEvent, ...]

    def decoded(self) -> list[Event]:
        """Return the events themselves."""
        return [from_history(one) for one in self.events]
