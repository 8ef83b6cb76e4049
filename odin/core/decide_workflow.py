"""Decisions on workflow tasks: reports, failures, and what commands lead to."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from odin.core import commands
from odin.core.bad_commands import why_bad
from odin.core.decide import Change, Decision, Moment
from odin.core.decide_activity import ended
from odin.core.decide_client import NewRun, begin
from odin.core.door import fit_details, fit_failure
from odin.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCancelRequested,
    ActivityTaskScheduled,
    TimerCanceled,
    TimerStarted,
    WorkflowExecutionCanceled,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
    WorkflowExecutionFailed,
    WorkflowTaskCompleted,
)
from odin.core.execution import (
    REPORTS_KEPT_MAX,
    AcceptedReport,
    Execution,
    PendingActivity,
    PendingTimer,
    unpack_values,
)
from odin.core.payload import Failure
from odin.core.requests import StartWorkflow
from odin.core.wire import ReportWorkflowTask, ReportWorkflowTaskFailure

TIME_AHEAD_US_MAX: Final = 1_000_000
FAILURE_BACKOFF_MS: Final = 1_000
FAILURE_BACKOFF_CAP_MS: Final = 600_000

Refusal: TypeAlias = Literal["stale", "closed", "unseen", "failed"]


class ReportOutcome(msgspec.Struct, frozen=True):
    """What a workflow-task report leads to.

    Either it was accepted (`accepted`: what its answer and its repeats' answers carry), or
    `refused` says why not. What is to be written may come with either; a repeat writes nothing.
    """

    accepted: AcceptedReport | None = None
    refused: Refusal | None = None
    decision: Decision | None = None


def is_task_wanted(execution: Execution, number: int) -> bool:
    """Return whether workflow task `number` still waits for a worker."""
    task = execution.workflow_task
    return execution.is_open and task.state == "scheduled" and task.number == number


def decide_report(
    execution: Execution,
    report: ReportWorkflowTask,
    worker: str,
    build_id: str,
    moment: Moment,
    successor: NewRun,
) -> ReportOutcome:
    """Decide the report of a workflow task that was run.

    It is accepted if it names the current task token; events appended since what it had seen belong
    to the next task. Only a report that closes the run while a signal or cancel is unseen is
    refused, whole, and goes round at once. Commands that cannot be recorded fail the task.

    Args:
        execution: The run.
        report: What the worker says.
        worker: The incarnation that says it.
        build_id: The worker's.
        moment: When.
        successor: Ids for the next run, used if the report continues as new.
    """
    for kept in execution.reports:
        if kept.worker == worker and kept.report_id == report.report_id:
            return ReportOutcome(accepted=kept)
    refusal = _refusal(execution, report, moment)
    if refusal is not None:
        return ReportOutcome(refused=refusal)
    why = why_bad(execution, report.commands)
    if why is not None:
        bad = Failure(message=why, kind="worker", type="BadCommands")
        failed = _fail_task(execution, bad, report.report_id, moment)
        return ReportOutcome(refused="failed", decision=failed)
    closing = bool(report.commands) and isinstance(report.commands[-1], commands.CLOSING_COMMANDS)
    full = None if closing else moment.limits.why_full(execution, report.commands)
    if full is not None:
        too_long = Failure(message=full, kind="worker", type="HistoryTooLong")
        failed = _fail_task(execution, too_long, report.report_id, moment)
        return ReportOutcome(refused="failed", decision=failed)
    if closing and execution.last_message_event_id > report.seen:
        change = Change(execution, moment)
        change.publish_workflow_task()
        return ReportOutcome(refused="unseen", decision=change.decision())
    return _accept(execution, report, (worker, build_id), moment, successor)


def _accept(
    execution: Execution,
    report: ReportWorkflowTask,
    by: tuple[str, str],
    moment: Moment,
    successor: NewRun,
) -> ReportOutcome:
    """Record the report, and keep what its repeats are to be answered."""
    worker, build_id = by
    change = Change(execution, moment)
    task = change.after.workflow_task
    task.state = "none"
    task.last_time_us = report.time_us
    change.append(
        WorkflowTaskCompleted(
            seen=report.seen,
            time_us=report.time_us,
            worker=worker,
            build_id=build_id,
            task_number=report.number,
        )
    )
    change.after.build_id = build_id
    _apply_commands(change, report, moment, successor)
    if change.after.last_visible_event_id > report.seen:
        change.wake()
    decision = change.decision()
    accepted = AcceptedReport(
        worker,
        report.report_id,
        report.seen,
        decision.execution.next_event_id - 1,
        decision.execution.state_token,
    )
    others = tuple(kept for kept in execution.reports if kept.worker != worker)
    decision.execution.reports = (*others[-(REPORTS_KEPT_MAX - 1) :], accepted)
    return ReportOutcome(accepted=accepted, decision=decision)


def decide_task_failure(
    execution: Execution, report: ReportWorkflowTaskFailure, moment: Moment
) -> Decision | None:
    """Decide the report of a workflow task that could not be run; None if it changes nothing.

    The task is retried with backoff, 1 s doubled up to 10 min, for as long as the run is open: a
    bug never ends a run. A report that names no pending task changes nothing, nor does a repeat.
    """
    task = execution.workflow_task
    if (
        not execution.is_open
        or report.task_token != execution.task_token
        or task.state != "scheduled"
        or task.number != report.number
        or task.failed_report_id == report.report_id
    ):
        return None
    return _fail_task(execution, report.failure, report.report_id, moment)


def decide_republish_task(execution: Execution, moment: Moment) -> Decision | None:
    """Bring the scheduled workflow task back: its claimant is gone, or it was found nowhere.

    It is pushed if the run is warm at a linked worker, else it goes to the shared queue.
    """
    if not execution.is_open or execution.workflow_task.state != "scheduled":
        return None
    change = Change(execution, moment)
    if moment.sticky:
        change.push_workflow_task()
    else:
        change.publish_workflow_task()
    return change.decision()


def _refusal(execution: Execution, report: ReportWorkflowTask, moment: Moment) -> Refusal | None:
    task = execution.workflow_task
    if not execution.is_open:
        return "closed"
    if task.failed_report_id == report.report_id:
        return "failed"
    latest_us = max(moment.now_us, execution.last_event_us) + TIME_AHEAD_US_MAX
    if (
        report.task_token != execution.task_token
        or task.state == "none"
        or task.number != report.number
        or not 0 < report.seen < execution.next_event_id
        or not task.last_time_us <= report.time_us <= latest_us
    ):
        return "stale"
    return None


def _fail_task(execution: Execution, failure: Failure, report_id: str, moment: Moment) -> Decision:
    change = Change(execution, moment)
    task = change.after.workflow_task
    task.failures += 1
    task.last_failure = failure
    task.failed_report_id = report_id
    delay_ms = min(FAILURE_BACKOFF_MS * 2 ** min(task.failures - 1, 20), FAILURE_BACKOFF_CAP_MS)
    task.state = "backoff"
    task.pushed = False
    task.interval_ms = execution.task_timeout_ms
    task.due_us = change.at_us + delay_ms * 1_000
    return change.decision()


def _apply_commands(
    change: Change, report: ReportWorkflowTask, moment: Moment, successor: NewRun
) -> None:
    """Append one event per command, in order, and change what is pending."""
    canceled_later: list[ActivityTaskCanceled] = []
    for command in report.commands:
        match command:
            case commands.ScheduleActivity():
                _schedule_activity(change, command)
            case commands.StartTimer():
                _start_timer(change, command, report.time_us)
            case commands.CancelTimer():
                change.append(TimerCanceled(command_id=command.command_id))
                change.after.timers.pop(command.command_id, None)
            case commands.RequestCancelActivity():
                _cancel_activity(change, command, canceled_later)
            case commands.ContinueAsNew():
                _continue_as_new(change, command, moment, successor)
            case _:
                _close(change, command)
    for canceled in canceled_later if change.after.is_open else ():
        change.append(canceled)


def _close(
    change: Change,
    command: commands.CompleteWorkflow | commands.FailWorkflow | commands.CancelWorkflow,
) -> None:
    match command:
        case commands.CompleteWorkflow():
            change.close(WorkflowExecutionCompleted(result=command.result), "completed")
        case commands.FailWorkflow():
            change.close(WorkflowExecutionFailed(failure=fit_failure(command.failure)), "failed")
        case commands.CancelWorkflow():
            change.close(
                WorkflowExecutionCanceled(details=fit_details(command.details)), "canceled"
            )
        case _ as never:
            assert_never(never)


def _start_timer(change: Change, command: commands.StartTimer, time_us: int) -> None:
    """Start a timer, counted from the time that the workflow saw."""
    fires_at_us = time_us + command.duration_ms * 1_000
    change.append(
        TimerStarted(
            command_id=command.command_id,
            duration_ms=command.duration_ms,
            fires_at_us=fires_at_us,
            summary=command.summary,
        )
    )
    change.after.timers[command.command_id] = PendingTimer(command.command_id, fires_at_us)
    change.after.workflow_task.last_command_id = command.command_id


def _schedule_activity(change: Change, command: commands.ScheduleActivity) -> None:
    event_id = change.append(
        ActivityTaskScheduled(
            command_id=command.command_id,
            activity_id=command.activity_id,
            activity_type=command.activity_type,
            task_queue=command.task_queue,
            input=command.input,
            retry_policy=command.retry_policy,
            schedule_to_start_ms=command.schedule_to_start_ms,
            start_to_close_ms=command.start_to_close_ms,
            schedule_to_close_ms=command.schedule_to_close_ms,
            heartbeat_ms=command.heartbeat_ms,
            summary=command.summary,
        )
    )
    change.after.workflow_task.last_command_id = command.command_id
    change.publish_activity(
        PendingActivity(
            command_id=command.command_id,
            activity_id=command.activity_id,
            activity_type=command.activity_type,
            task_queue=command.task_queue,
            scheduled_event_id=event_id,
            scheduled_us=change.at_us,
            queued_us=change.at_us,
            retry_policy=command.retry_policy,
            schedule_to_start_ms=command.schedule_to_start_ms,
            start_to_close_ms=command.start_to_close_ms,
            schedule_to_close_ms=command.schedule_to_close_ms,
            heartbeat_ms=command.heartbeat_ms,
        )
    )


def _cancel_activity(
    change: Change,
    command: commands.RequestCancelActivity,
    canceled_later: list[ActivityTaskCanceled],
) -> None:
    """Record the request; an activity that nobody runs or awaits is canceled with it.

    Who awaits it learns so by an event of its own, after those of all commands.
    """
    change.append(ActivityTaskCancelRequested(command_id=command.command_id))
    activity = change.after.activities.get(command.command_id)
    if activity is None:
        return
    change.stop(activity, "canceled")
    running = activity.state == "started"
    if running and command.wait:
        change.after.activities[command.command_id] = msgspec.structs.replace(
            activity, cancel_requested=True
        )
        return
    del change.after.activities[command.command_id]
    attempts = ended(change, activity, "canceled") if running else activity.attempts
    canceled = ActivityTaskCanceled(command_id=command.command_id, attempts=attempts)
    if command.wait:
        canceled_later.append(canceled)
    else:
        change.append(canceled, visible=False)


def _continue_as_new(
    change: Change, command: commands.ContinueAsNew, moment: Moment, successor: NewRun
) -> None:
    """Close the run and begin its successor in the same commit: same workflow id, same chain."""
    before = change.after
    run_timeout_ms = command.run_timeout_ms
    if run_timeout_ms is None and before.run_deadline_us is not None:
        run_timeout_ms = (before.run_deadline_us - before.started_us) // 1_000
    request = StartWorkflow(
        namespace=before.namespace,
        workflow_id=before.workflow_id,
        request_id="",
        workflow_type=command.workflow_type or before.workflow_type,
        task_queue=command.task_queue or before.task_queue,
        input=command.input,
        run_timeout_ms=run_timeout_ms,
        task_timeout_ms=before.task_timeout_ms,
        origin=before.origin,
        memo=unpack_values(before.memo) if command.memo is None else command.memo,
        search_attributes=unpack_values(before.search_attributes),
    )
    change.close(
        WorkflowExecutionContinuedAsNew(
            new_run_id=successor.run_id,
            workflow_type=request.workflow_type,
            task_queue=request.task_queue,
            input=command.input,
        ),
        "continued_as_new",
    )
    fresh = Moment(
        change.at_us, moment.range_id, moment.batch_random ^ successor.seed, sticky=False
    )
    change.also.append(
        begin(request, successor, fresh, first_run_id=before.first_run_id, continued_from=before)
    )
