"""The rules that every decision must keep, told from histories alone: no code of the decisions is
used here but the event classes and the row's encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from odin.core import events as e
from odin.core.decide import Decision
from odin.core.execution import Execution, Pending, due_us, pack_pending, unpack_pending

ENDINGS = (
    e.ActivityTaskCompleted,
    e.ActivityTaskFailed,
    e.ActivityTaskTimedOut,
    e.ActivityTaskCanceled,
)
STATUS: dict[type, str] = {
    e.WorkflowExecutionCompleted: "completed",
    e.WorkflowExecutionFailed: "failed",
    e.WorkflowExecutionCanceled: "canceled",
    e.WorkflowExecutionTerminated: "terminated",
    e.WorkflowExecutionTimedOut: "timed_out",
    e.WorkflowExecutionContinuedAsNew: "continued_as_new",
}


@dataclass(frozen=True)
class Batch:
    """What one appended batch gave the run."""

    types: tuple[str, ...]
    state_token: int
    task_token: int


@dataclass
class Folded:
    """What a history says, read from its start."""

    status: str = "running"
    activities: dict[int, e.ActivityTaskScheduled] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    signals: int = 0
    cancel_requested: bool = False
    last_message: int = 0
    last_task_us: int = 0
    build_id: str = ""
    bytes: int = 0


def fold(history: Sequence[e.HistoryEvent]) -> Folded:
    """Read a whole history; what cannot have happened is an error."""
    folded = Folded()
    for stored in history:
        assert folded.status == "running", f"{stored.type} after the closing event"
        folded.bytes += len(stored.attributes)
        _step(folded, stored.event_id, e.from_history(stored))
    return folded


def _step(folded: Folded, event_id: int, event: e.Event) -> None:
    match event:
        case e.WorkflowExecutionStarted():
            assert event_id == 1
        case e.WorkflowTaskCompleted():
            assert 0 < event.seen < event_id
            assert event.time_us >= folded.last_task_us
            folded.last_task_us, folded.build_id = event.time_us, event.build_id
        case e.WorkflowExecutionSignaled():
            folded.signals += 1
            folded.last_message = event_id
        case e.WorkflowExecutionCancelRequested():
            assert not folded.cancel_requested
            folded.cancel_requested, folded.last_message = True, event_id
        case _ if type(event) in STATUS:
            folded.status = STATUS[type(event)]
            folded.timers = {}
        case _:
            _step_of_command(folded, event)


def _step_of_command(folded: Folded, event: e.Event) -> None:
    match event:
        case e.ActivityTaskScheduled():
            assert event.command_id not in folded.activities
            folded.activities[event.command_id] = event
        case e.TimerStarted():
            folded.timers[event.command_id] = event.fires_at_us
        case e.TimerFired():
            del folded.timers[event.command_id]
        case e.TimerCanceled():
            folded.timers.pop(event.command_id, None)
        case e.ActivityTaskCancelRequested():
            pass
        case _:
            assert isinstance(event, ENDINGS)
            _ended(folded, event)


def _ended(
    folded: Folded,
    event: e.ActivityTaskCompleted
    | e.ActivityTaskFailed
    | e.ActivityTaskTimedOut
    | e.ActivityTaskCanceled,
) -> None:
    assert event.command_id in folded.activities, "an end without a beginning"
    assert event.command_id not in folded.ended, "an activity ended twice"
    folded.ended.add(event.command_id)
    numbers = [record.attempt for record in event.attempts]
    policy = folded.activities[event.command_id].retry_policy
    assert numbers == list(range(1, len(numbers) + 1)) or len(numbers) == 200
    assert policy.maximum_attempts == 0 or len(numbers) <= policy.maximum_attempts
    assert len({record.claim_token for record in event.attempts}) == len(numbers)
    for record in event.attempts:
        assert record.started_us <= record.ended_us
    for before, after in pairwise(event.attempts):
        assert before.ended_us <= after.started_us


def judge(
    before: Execution | None,
    history: list[e.HistoryEvent],
    batches: list[Batch],
    decision: Decision,
) -> None:
    """Judge one decision, and append its events to `history`."""
    after = decision.execution
    if before is not None and not before.is_open:
        assert decision.events == (), "events after the closing event"
    history.extend(decision.events)
    assert [stored.event_id for stored in history] == list(range(1, len(history) + 1))
    assert after.next_event_id == len(history) + 1
    assert all(a.recorded_at_us <= b.recorded_at_us for a, b in pairwise(history))
    assert after.last_event_us == history[-1].recorded_at_us
    folded = fold(history)
    _judge_state(after, folded)
    _judge_tokens(before, after, batches, decision)
    _judge_pending(after, decision)
    assert unpack_pending(pack_pending(after)) == Pending(
        after.workflow_task, after.activities, after.timers, after.reports
    )


def _judge_state(after: Execution, folded: Folded) -> None:
    assert after.status == folded.status
    assert after.is_open == (after.closed_us is None)
    assert after.signal_count == folded.signals
    assert after.cancel_requested == folded.cancel_requested
    assert after.last_message_event_id == folded.last_message
    assert after.history_bytes == folded.bytes
    assert after.workflow_task.last_time_us == folded.last_task_us
    assert after.build_id == folded.build_id
    assert {one: timer.fires_at_us for one, timer in after.timers.items()} == folded.timers
    open_ids = set(folded.activities) - folded.ended if after.is_open else set()
    assert set(after.activities) == open_ids


def _judge_tokens(
    before: Execution | None, after: Execution, batches: list[Batch], decision: Decision
) -> None:
    if not decision.events:
        assert before is not None
        assert after.state_token == before.state_token
        assert after.task_token == before.task_token
        return
    types = tuple(stored.type for stored in decision.events)
    batches.append(Batch(types, after.state_token, after.task_token))
    assert after.state_token not in (0, *(batch.state_token for batch in batches[:-1]))
    naming = [batch for batch in batches if "workflow_task_completed" in batch.types]
    assert after.task_token == (naming[-1] if naming else batches[0]).state_token


def _judge_pending(after: Execution, decision: Decision) -> None:
    task = after.workflow_task
    if not after.is_open:
        assert (due_us(after), decision.tasks, decision.push) == (None, (), False)
        assert task.state == "none"
        assert not after.has_scheduled_task
        return
    for pending in after.activities.values():
        lived = pending.attempt - (pending.state == "started")
        assert [record.attempt for record in pending.attempts] == list(range(1, lived + 1))[-200:]
        maximum = pending.retry_policy.maximum_attempts
        assert maximum == 0 or pending.attempt <= maximum
        assert (pending.claim_token != "") == (pending.state == "started") or not pending.attempt
        assert pending.due_us > 0
    earliest = [pending.due_us for pending in after.activities.values()]
    earliest += [timer.fires_at_us for timer in after.timers.values()]
    earliest += [task.due_us] if task.state != "none" else []
    deadlines = (after.run_deadline_us, after.execution_deadline_us)
    earliest += [deadline for deadline in deadlines if deadline is not None]
    assert due_us(after) == min(earliest, default=None)
    destinations = [(one.entry.kind, one.entry.number) for one in decision.tasks]
    assert len(set(destinations)) == len(destinations)
    assert not (decision.push and ("w", task.number) in destinations)
    for one in decision.tasks:
        _judge_task(after, one.entry.kind, one.entry.number, one.entry.attempt)


def _judge_task(after: Execution, kind: str, number: int, attempt: int) -> None:
    """Judge that what leaves through the outbox is what a claim would be granted."""
    if kind == "w":
        task = after.workflow_task
        assert (task.state, task.number, task.attempt) == ("scheduled", number, attempt)
        return
    pending = after.activities.get(number)
    assert pending is None or (pending.state, pending.attempt + 1) == ("scheduled", attempt)
