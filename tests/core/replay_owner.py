"""A tiny owner: turns commands into events as the engine does, and keeps one run's history."""

# ruff: noqa: ANN401, C901 - a test helper: results have any type

from __future__ import annotations

from typing import Any

from odin.core import commands as c
from odin.core import events as e
from odin.core.definition import WorkflowDefinition, WorkflowInfo
from odin.core.instance import Instance, TaskOutcome
from odin.core.payload import Failure, decode, encode, encode_all

RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
START_US = 1_700_000_000_000_000


class Owner:
    """One run: its history, what is pending, and a warm instance that is fed with every event."""

    def __init__(self, workflow: Any, *args: object, warm: bool = True, seed: int = 7) -> None:
        self.definition = WorkflowDefinition.of(workflow)
        self.history: list[e.HistoryEvent] = []
        self.outcomes: list[TaskOutcome] = []
        self.now_us = START_US
        self.activities: dict[int, c.ScheduleActivity] = {}
        self.waited: set[int] = set()
        self.timers: dict[int, c.StartTimer] = {}
        self.closing: c.Command | None = None
        self.warm = self.cold() if warm else None
        self.append(
            e.WorkflowExecutionStarted(
                workflow_type=self.definition.name,
                task_queue="default",
                input=encode_all(args),
                first_run_id=RUN_ID,
                seed=seed,
            )
        )

    def cold(self) -> Instance:
        """Return an instance that knows nothing yet."""
        info = WorkflowInfo(namespace="default", workflow_id="order-1", run_id=RUN_ID)
        return Instance(self.definition, info)

    def append(self, event: e.Event) -> None:
        self.history.append(e.to_history(event, len(self.history) + 1, self.now_us))

    # What happens from outside.

    def signal(self, name: str, *args: object) -> None:
        self.append(e.WorkflowExecutionSignaled(name=name, input=encode_all(args)))

    def cancel(self, reason: str = "") -> None:
        self.append(e.WorkflowExecutionCancelRequested(reason=reason))

    def complete(self, command_id: int, result: object = None) -> None:
        del self.activities[command_id]
        self.append(e.ActivityTaskCompleted(command_id=command_id, result=encode(result)))

    def fail(self, command_id: int, message: str = "broken", kind: str = "Broken") -> None:
        del self.activities[command_id]
        self.append(
            e.ActivityTaskFailed(
                command_id=command_id,
                failure=Failure(message, type=kind),
                retry_state="max_attempts",
            )
        )

    def time_out(self, command_id: int) -> None:
        del self.activities[command_id]
        self.append(
            e.ActivityTaskTimedOut(
                command_id=command_id,
                timeout_type="start_to_close",
                failure=Failure("too slow", "timeout", timeout_type="start_to_close"),
            )
        )

    def end_canceled(self, command_id: int, *details: object) -> None:
        del self.activities[command_id]
        self.append(e.ActivityTaskCanceled(command_id=command_id, details=encode_all(details)))

    def fire(self, command_id: int | None = None) -> None:
        if command_id is None:
            command_id = min(self.timers)
        self.now_us += self.timers.pop(command_id).duration_ms * 1_000
        self.append(e.TimerFired(command_id=command_id))

    # Workflow tasks.

    def missing(self, instance: Instance) -> list[e.HistoryEvent]:
        return self.history[instance.last_event_id :]

    def begin(self) -> TaskOutcome:
        """Run the pending workflow task in the warm instance; nothing is recorded yet."""
        assert self.warm is not None
        self.warm.apply(self.missing(self.warm))
        self.now_us += 1_000
        return self.warm.run_task(self.now_us)

    def accept(self, outcome: TaskOutcome) -> None:
        """Record an outcome as the engine does."""
        assert outcome.failure is None, outcome.failure
        self.outcomes.append(outcome)
        self.append(e.WorkflowTaskCompleted(seen=outcome.seen, time_us=outcome.time_us, worker="w"))
        for command in outcome.commands:
            self._record(command)
        if self.warm is not None:
            self.warm.apply(self.missing(self.warm))

    def step(self) -> tuple[c.Command, ...]:
        """Run the pending workflow task and record it; return its commands."""
        outcome = self.begin()
        self.accept(outcome)
        return outcome.commands

    def broken_step(self) -> Failure:
        """Run the pending workflow task, which must fail."""
        failure = self.begin().failure
        assert failure is not None
        return failure

    def _record(self, command: c.Command) -> None:
        match command:
            case c.ScheduleActivity():
                self.activities[command.command_id] = command
                fields = {name: getattr(command, name) for name in command.__struct_fields__}
                self.append(e.ActivityTaskScheduled(**fields))
            case c.RequestCancelActivity(command_id=at, wait=wait):
                self.append(e.ActivityTaskCancelRequested(command_id=at))
                if at in self.activities and not wait:
                    del self.activities[at]
                    self.append(e.ActivityTaskCanceled(command_id=at))
                elif at in self.activities:
                    self.waited.add(at)
            case c.StartTimer(command_id=at, duration_ms=ms, summary=summary):
                self.timers[at] = command
                fires = self.now_us + ms * 1_000
                self.append(
                    e.TimerStarted(
                        command_id=at, duration_ms=ms, fires_at_us=fires, summary=summary
                    )
                )
            case c.CancelTimer(command_id=at):
                self.timers.pop(at, None)
                self.append(e.TimerCanceled(command_id=at))
            case c.CompleteWorkflow(result=result):
                self.append(e.WorkflowExecutionCompleted(result=result))
            case c.FailWorkflow(failure=failure):
                self.append(e.WorkflowExecutionFailed(failure=failure))
            case c.CancelWorkflow():
                self.append(e.WorkflowExecutionCanceled())
            case c.ContinueAsNew():
                self.append(
                    e.WorkflowExecutionContinuedAsNew(
                        new_run_id=RUN_ID, workflow_type="x", task_queue="q", input=command.input
                    )
                )
        if isinstance(command, c.CLOSING_COMMANDS):
            self.closing = command

    @property
    def result(self) -> Any:
        assert isinstance(self.closing, c.CompleteWorkflow), self.closing
        return decode(self.closing.result)

    @property
    def failure(self) -> Failure:
        assert isinstance(self.closing, c.FailWorkflow), self.closing
        return self.closing.failure

    # Judging.

    def check_replay(self) -> Instance:
        """Replay the whole history cold, in one piece; it must fit."""
        instance = self.cold()
        instance.apply(self.history)
        assert instance.closed == (self.closing is not None)
        return instance

    def check_every_task(self) -> None:
        """Run every task once more on a cold instance; the commands must be the same bytes."""
        instance = self.cold()
        for expected in self.outcomes:
            instance.apply(self.history[instance.last_event_id : expected.seen])
            outcome = instance.run_task(expected.time_us)
            assert outcome.commands == expected.commands
            answered = next(
                at
                for at in range(expected.seen, len(self.history))
                if self.history[at].type == "workflow_task_completed"
            )
            end = answered + 1 + len(expected.commands)
            instance.apply(self.history[instance.last_event_id : end])
        instance.apply(self.history[instance.last_event_id :])
        instance.evict()
