"""What every decision is made of: a moment, the change it builds, and the value it returns.

A decision function takes an execution, a request and a moment, and returns a `Decision`: everything
that the request leads to. The shard writer commits all of it in one transaction, or none. Nothing
here reads a clock or rolls dice: both are in the `Moment`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from odin.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskTimedOut,
    Event,
    HistoryEvent,
    TimerFired,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowTaskCompleted,
    to_history,
)
from odin.core.execution import (
    STICKY_DUE_MS,
    TASK_DUE_MS,
    Execution,
    PendingActivity,
    Status,
    copy_of,
    next_token,
)
from odin.core.history_limits import HISTORY_LIMITS, HistoryLimits
from odin.core.wire import TaskEntry

_MESSAGES = (WorkflowExecutionSignaled, WorkflowExecutionCancelRequested)
_VISIBLE = (
    *_MESSAGES,
    WorkflowExecutionStarted,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskTimedOut,
    ActivityTaskCanceled,
    TimerFired,
)


class Moment(msgspec.Struct, frozen=True):
    """When and under what a decision is made.

    Args:
        now_us: The cluster's time as the owner estimates it (a lower bound).
        range_id: The range of the owner's term, a hint in task messages.
        batch_random: 64 random bits for the state token of the batch.
        sticky: Whether the run is warm at a worker whose link is open: its next workflow task is
            pushed there.
        limits: How long a history may grow.
    """

    now_us: int
    range_id: int
    batch_random: int
    sticky: bool = False
    limits: HistoryLimits = HISTORY_LIMITS


class OutboxTask(msgspec.Struct, frozen=True):
    """A task that leaves through the outbox: `destination` is `<kind>:<task_queue>`."""

    destination: str
    entry: TaskEntry


class Acknowledged(msgspec.Struct, frozen=True):
    """What a request row keeps of an accepted request."""

    request_id: str
    kind: str
    run_id: str
    event_id: int
    body_hash: bytes


class StoppedAttempt(msgspec.Struct, frozen=True):
    """An attempt that runs at a worker and is no longer wanted."""

    command_id: int
    claim_token: str
    worker: str
    reason: str


class Decision(msgspec.Struct):
    """Everything that one request leads to for one run, and what comes with it in the same commit.

    `push` says that the workflow task just scheduled goes to the worker that keeps the run warm.
    `also` holds decisions on other runs that stand or fall with this one: the run that a start
    terminates, the successor of continue-as-new.
    """

    execution: Execution
    events: tuple[HistoryEvent, ...] = ()
    tasks: tuple[OutboxTask, ...] = ()
    acknowledged: Acknowledged | None = None
    is_new: bool = False
    push: bool = False
    stopped: tuple[StoppedAttempt, ...] = ()
    also: tuple[Decision, ...] = ()


class Change:
    """Builds one decision on a copy of an execution."""

    __slots__ = (
        "_before",
        "_moment",
        "_names_task",
        "acknowledged",
        "after",
        "also",
        "at_us",
        "events",
        "push",
        "stopped",
        "tasks",
    )

    def __init__(self, execution: Execution, moment: Moment) -> None:
        self._before = execution
        self._moment = moment
        self._names_task = False
        self.after = copy_of(execution)
        self.at_us = max(execution.last_event_us, moment.now_us)
        self.events: list[HistoryEvent] = []
        self.tasks: list[OutboxTask] = []
        self.stopped: list[StoppedAttempt] = []
        self.also: list[Decision] = []
        self.acknowledged: Acknowledged | None = None
        self.push = False

    def not_before(self, at_us: int) -> None:
        """Move the change's time to `at_us` if it lies before: a claim leaves no event behind.

        The estimate of a new owner may lag behind that of the one which granted the claim.
        """
        self.at_us = max(self.at_us, at_us)

    def append(self, event: Event, *, visible: bool | None = None) -> int:
        """Append `event` and return its id. `visible` overrides whether the workflow can see it."""
        after = self.after
        event_id = after.next_event_id
        stored = to_history(event, event_id, self.at_us)
        self.events.append(stored)
        after.next_event_id = event_id + 1
        after.history_bytes += len(stored.attributes)
        if isinstance(event, (WorkflowTaskCompleted, WorkflowExecutionStarted)):
            self._names_task = True
        if isinstance(event, _VISIBLE) if visible is None else visible:
            after.last_visible_event_id = event_id
            if isinstance(event, _MESSAGES):
                after.last_message_event_id = event_id
        return event_id

    def wake(self) -> None:
        """Schedule a workflow task unless one is pending already or the run is closed."""
        if self.after.is_open and self.after.workflow_task.state == "none":
            self.schedule_workflow_task()

    def wake_if_visible(self) -> None:
        """Wake the workflow if this change has appended something that it can see."""
        if self.after.last_visible_event_id > self._before.last_visible_event_id:
            self.wake()

    def schedule_workflow_task(self) -> None:
        """Begin the next workflow task: pushed to the warm worker, or through the outbox."""
        task = self.after.workflow_task
        task.number += 1
        task.attempt = 1
        task.failures = 0
        task.last_failure = None
        task.failed_report_id = ""
        task.state = "scheduled"
        task.interval_ms = self.after.task_timeout_ms
        if self._moment.sticky:
            self.push_workflow_task()
        else:
            self.publish_workflow_task()

    def push_workflow_task(self) -> None:
        """Send the workflow task to the worker that keeps the run warm; due again after 5 s."""
        task = self.after.workflow_task
        task.state = "scheduled"
        task.pushed = True
        task.due_us = self.at_us + STICKY_DUE_MS * 1_000
        self.push = True

    def publish_workflow_task(self) -> None:
        """Send the scheduled workflow task through the outbox; due again after its interval."""
        after = self.after
        task = after.workflow_task
        task.state = "scheduled"
        task.pushed = False
        task.due_us = self.at_us + task.interval_ms * 1_000
        self.push = False
        entry = TaskEntry(
            "w", after.shard_id, self._moment.range_id, after.run_id, task.number, task.attempt
        )
        self.tasks.append(OutboxTask("w:" + after.task_queue, entry))

    def publish_activity(self, activity: PendingActivity, interval_ms: int = TASK_DUE_MS) -> None:
        """Send `activity` through the outbox, due again after its interval."""
        after = self.after
        entry = TaskEntry(
            "a",
            after.shard_id,
            self._moment.range_id,
            after.run_id,
            activity.command_id,
            activity.attempt + 1,
        )
        self.tasks.append(OutboxTask("a:" + activity.task_queue, entry))
        scheduled = msgspec.structs.replace(
            activity,
            state="scheduled",
            interval_ms=interval_ms,
            due_us=self.at_us + interval_ms * 1_000,
        )
        scheduled.due_us = min(scheduled.due_us, deadline_us(scheduled))
        after.activities[activity.command_id] = scheduled

    def stop(self, activity: PendingActivity, reason: str) -> None:
        """Tell the worker that runs `activity`, if one does, that it is no longer wanted."""
        if activity.state == "started":
            self.stopped.append(
                StoppedAttempt(activity.command_id, activity.claim_token, activity.worker, reason)
            )

    def close(self, event: Event, status: Status) -> int:
        """Append the closing event: nothing is pending any more, and nothing follows."""
        for activity in self.after.activities.values():
            self.stop(activity, "run closed")
        after = self.after
        event_id = self.append(event, visible=False)
        after.status = status
        after.closed_us = self.at_us
        after.workflow_task.state = "none"
        after.activities = {}
        after.timers = {}
        self.tasks.clear()
        self.push = False
        return event_id

    def decision(self) -> Decision:
        """Return what was built; tokens move on with the batch."""
        after = self.after
        events = tuple(self.events)
        if events:
            after.last_event_us = self.at_us
            after.state_token = next_token(
                self._before.state_token, events, self._moment.batch_random
            )
            if self._names_task:
                after.task_token = after.state_token
        return Decision(
            execution=after,
            events=events,
            tasks=tuple(self.tasks),
            acknowledged=self.acknowledged,
            push=self.push,
            stopped=tuple(self.stopped),
            also=tuple(self.also),
        )


NEVER_US: Final = 2**62
"""The due of what has no bound: some 144,000 years ahead, and still an instant for Postgres."""


def deadline_us(activity: PendingActivity) -> int:
    """Return when an activity that nobody runs is out of time, whatever is published.

    2**62 for never. The wait of a backoff does not count against schedule_to_start.
    """
    deadline = NEVER_US
    if activity.schedule_to_start_ms is not None and activity.state == "scheduled":
        deadline = activity.queued_us + activity.schedule_to_start_ms * 1_000
    if activity.schedule_to_close_ms is not None:
        deadline = min(deadline, activity.scheduled_us + activity.schedule_to_close_ms * 1_000)
    return deadline


def started_due_us(activity: PendingActivity, last_beat_us: int) -> int:
    """Return when a started attempt is out of time: its own end, its heartbeat, the activity's."""
    due = NEVER_US
    if activity.start_to_close_ms is not None:
        due = activity.started_us + activity.start_to_close_ms * 1_000
    if activity.heartbeat_ms is not None:
        due = min(due, max(last_beat_us, activity.started_us) + activity.heartbeat_ms * 1_000)
    if activity.schedule_to_close_ms is not None:
        due = min(due, activity.scheduled_us + activity.schedule_to_close_ms * 1_000)
    return due
