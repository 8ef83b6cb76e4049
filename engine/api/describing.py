"""Turns an `Execution`, from memory or from its row, into what the API shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .views import (
    ExecutionView,
    OwnerView,
    PendingActivityView,
    PendingTimerView,
    WorkflowTaskView,
    failure_view,
    instant,
    instant_or_none,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odin.core.execution import Execution, PendingActivity, WorkflowTask
    from odin.core.payload import Payload
    from odin.core.requests import Outcome

_BACKOFF = "backoff"


def execution_view(
    execution: Execution,
    owner: OwnerView,
    *,
    inputs: Sequence[Payload] = (),
    outcome: Outcome | None = None,
    memo: Mapping[str, Payload] | None = None,
    search_attributes: Mapping[str, Payload] | None = None,
) -> ExecutionView:
    """Return what the API shows of a run.

    Args:
        execution: The run.
        owner: Where it lives.
        inputs: The positional arguments, from its first event.
        outcome: How it ended, if it did.
        memo: From its first event.
        search_attributes: From its first event.
    """
    result = outcome.result if outcome else None
    return ExecutionView(
        namespace=execution.namespace,
        workflow_id=execution.workflow_id,
        run_id=execution.run_id,
        first_run_id=execution.first_run_id,
        workflow_type=execution.workflow_type,
        task_queue=execution.task_queue,
        status=execution.status,
        started_at=instant(execution.started_us),
        closed_at=instant_or_none(execution.closed_us),
        history_length=execution.next_event_id - 1,
        history_bytes=execution.history_bytes,
        signal_count=execution.signal_count,
        cancel_requested=execution.cancel_requested,
        origin=execution.origin,
        build_id=execution.build_id,
        run_deadline_at=instant_or_none(execution.run_deadline_us),
        execution_deadline_at=instant_or_none(execution.execution_deadline_us),
        owner=owner,
        workflow_task=_workflow_task(execution.workflow_task),
        pending_activities=tuple(_activity(one) for one in execution.activities.values()),
        pending_timers=tuple(
            PendingTimerView(command_id=timer.command_id, fires_at=instant(timer.fires_at_us))
            for timer in execution.timers.values()
        ),
        input=tuple(value_of(one) for one in inputs),
        result=value_of(result) if result else None,
        failure=failure_view(outcome.failure) if outcome else None,
        new_run_id=outcome.new_run_id if outcome else None,
        memo={key: value_of(value) for key, value in (memo or {}).items()},
        search_attributes={key: value_of(v) for key, v in (search_attributes or {}).items()},
    )


def _workflow_task(task: WorkflowTask) -> WorkflowTaskView:
    return WorkflowTaskView(
        state=task.state,
        number=task.number,
        attempt=task.attempt,
        failures=task.failures,
        last_failure=failure_view(task.last_failure),
        next_attempt_at=instant_or_none(task.due_us) if task.state == _BACKOFF else None,
    )


def _activity(activity: PendingActivity) -> PendingActivityView:
    return PendingActivityView(
        activity_id=activity.activity_id,
        activity_type=activity.activity_type,
        command_id=activity.command_id,
        task_queue=activity.task_queue,
        state=activity.state,
        attempt=activity.attempt,
        maximum_attempts=activity.retry_policy.maximum_attempts,
        scheduled_at=instant(activity.scheduled_us),
        started_at=instant_or_none(activity.started_us),
        next_attempt_at=instant_or_none(activity.due_us) if activity.state == _BACKOFF else None,
        worker=activity.worker,
        last_failure=failure_view(activity.last_failure),
        heartbeat_details=tuple(value_of(one) for one in activity.heartbeat_details),
        cancel_requested=activity.cancel_requested,
    )
