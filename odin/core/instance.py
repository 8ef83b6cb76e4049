"""One run in memory, fed with its history: replay, command matching, and the next workflow task.

Replay and live execution are one code path. Per workflow task: set the task's time; deliver the
signals and cancel requests that it has seen, in id order, and run whatever is ready; then apply the
other events that it has seen, in id order, and run after each whatever is ready. What the code
asked for meanwhile are the task's commands. Replay holds them against the events that follow
WorkflowTaskCompleted; a live task hands them out, and holds them against those events when they
come back.

An instance may be used on any thread, but by one at a time. After an error it can only be evicted.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING, NoReturn

import msgspec

from odin.core import events as e
from odin.core.commands import Command, RequestCancelActivity
from odin.core.determinism import install
from odin.core.failures import WorkflowTaskError
from odin.core.matching import COMMAND_EVENTS, fits, mismatch
from odin.core.payload import Failure
from odin.core.run import MESSAGES, Run
from odin.core.verdict import task_error
from odin.errors import FailedPreconditionError, OdinError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.core.definition import WorkflowDefinition, WorkflowInfo


class StaleInstanceError(FailedPreconditionError):
    """The instance cannot go on from what it was given: evict it, replay the history anew."""

    reason = "STALE_INSTANCE"


class TaskOutcome(msgspec.Struct, frozen=True):
    """What one workflow task led to.

    Attributes:
        seen: The newest event id that was applied.
        time_us: The time that the workflow saw.
        commands: What the code asks for, in order; empty if the task failed.
        failure: Why the task failed; the run itself stays open.
        notices: What the worker should log, such as a signal that was dropped.
    """

    seen: int
    time_us: int
    commands: tuple[Command, ...] = ()
    failure: Failure | None = None
    notices: tuple[str, ...] = ()


class Instance:
    """A run of a workflow in this process's memory.

    Args:
        definition: The workflow's code.
        info: Who the run is.
        cpu_time: CPU seconds used by the calling thread, for the budget of a workflow task.

    Attributes:
        last_event_id: The newest event taken.
        closed: Whether the history has ended.
    """

    def __init__(
        self,
        definition: WorkflowDefinition,
        info: WorkflowInfo,
        *,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        install()
        self.last_event_id = 0
        self.closed = False
        self._run = Run(definition, info, cpu_time)
        self._error: OdinError | None = None
        self._evicted = False
        self._unapplied: list[e.Event] = []
        self._unapplied_ids: list[int] = []
        self._commands: Sequence[Command] = ()
        self._matched = 0
        self._canceled_with: int | None = None
        self._outstanding: TaskOutcome | None = None

    @property
    def info(self) -> WorkflowInfo:
        """Who the run is; complete once the first event was taken."""
        return self._run.info

    @property
    def is_replaying(self) -> bool:
        """Whether the code runs through what it has done before."""
        return self._run.is_replaying

    def apply(self, history: Sequence[e.HistoryEvent]) -> None:
        """Take the next stored events: replay the workflow tasks in them, keep what none has seen.

        Raises:
            StaleInstanceError: There is a gap, or the history is not the one that this instance
                ran ahead of. WorkflowTaskError: The code fails on this history;
                NondeterminismError if it asks for something else.
        """
        if self._error is not None:
            raise self._error
        for stored in history:
            event_id = stored.event_id
            if event_id != self.last_event_id + 1:
                self._fail(
                    StaleInstanceError(
                        f"event {event_id} of run {self.info.run_id} came after event"
                        f" {self.last_event_id}"
                    )
                )
            self.last_event_id = event_id
            try:
                event = e.from_history(stored)
            except (KeyError, msgspec.ValidationError, msgspec.DecodeError) as error:
                self._fail(
                    WorkflowTaskError(
                        f"event {event_id} ({stored.type}) cannot be read by this worker: {error!r}"
                    )
                )
            self._take(event_id, event, stored.recorded_at_us)

    def run_task(self, time_us: int) -> TaskOutcome:
        """Run the pending workflow task over all events that no task has seen yet. Never raises.

        Args:
            time_us: The time that the workflow sees, microseconds since 1970.
        """
        seen = self.last_event_id
        run = self._run
        try:
            if self._error is not None:
                raise self._error
            if self._outstanding is not None:
                self._fail(StaleInstanceError("the answer to the last workflow task is missing"))
            self._end_matching(seen + 1)
            commands = tuple(self._execute(time_us, seen))
        except OdinError as error:
            failure = task_error(error, run.standing()).failure
            return TaskOutcome(seen, time_us, (), failure, run.take_notices())
        notices = run.take_notices() if run.notices else ()
        outcome = TaskOutcome(seen, time_us, commands, None, notices)
        self._outstanding = outcome
        return outcome

    def evict(self) -> None:
        """Unwind the code and let go of it. No command comes of it, and nothing runs afterwards."""
        if not self._evicted:
            self._evicted = True
            self._error = StaleInstanceError(f"run {self.info.run_id} was evicted from memory")
            self._run.unwind()

    # Taking the history.

    def _take(self, event_id: int, event: e.Event, recorded_at_us: int) -> None:
        canceled_with, self._canceled_with = self._canceled_with, None
        if type(event) in COMMAND_EVENTS:
            self._match(event_id, event)
            self.closed = isinstance(event, e.CLOSING)
        elif isinstance(event, e.WorkflowTaskCompleted):
            if self._outstanding is None:
                self._end_matching(event_id)
            self._turn(event)
        elif isinstance(event, e.ActivityTaskCanceled) and event.command_id == canceled_with:
            pass  # the owner's receipt for a cancellation that has resolved the wait already
        else:
            self._end_matching(event_id)
            self._keep(event_id, event, recorded_at_us)

    def _keep(self, event_id: int, event: e.Event, recorded_at_us: int) -> None:
        if isinstance(event, e.CLOSING):  # terminated or timed out: no code runs any more
            self.closed = True
            return
        if isinstance(event, e.WorkflowExecutionStarted):
            self._run.started = event
            self._run.info = self._run.info.started(event, recorded_at_us)
        self._unapplied.append(event)
        self._unapplied_ids.append(event_id)

    def _turn(self, event: e.WorkflowTaskCompleted) -> None:
        """Replay a recorded workflow task, or see in it the answer to the one that ran last."""
        outcome, self._outstanding = self._outstanding, None
        if outcome is None:
            self._run.is_replaying = True
            self._commands = self._execute(event.time_us, event.seen)
            self._run.is_replaying = False
        elif outcome.seen != event.seen or outcome.time_us != event.time_us:
            self._fail(
                StaleInstanceError(
                    f"the history of run {self.info.run_id} went on with a workflow task of another"
                    " worker"
                )
            )
        else:
            self._commands = outcome.commands
        self._matched = 0

    def _execute(self, time_us: int, seen: int) -> list[Command]:
        try:
            return self._run.execute(self._batch(seen), time_us, seen)
        except WorkflowTaskError as error:
            self._fail(error)

    def _batch(self, seen: int) -> list[e.Event]:
        """Return the events up to `seen` that no task has seen, in the order of application."""
        ids = self._unapplied_ids
        count = len(ids)
        while count and ids[count - 1] > seen:
            count -= 1
        batch = self._unapplied[:count]
        del self._unapplied[:count], ids[:count]
        if count > 1:
            batch.sort(key=_is_later)
        return batch

    def _match(self, event_id: int, event: e.Event) -> None:
        at, commands = self._matched, self._commands
        command = commands[at] if at < len(commands) else None
        if command is None or not fits(command, event):
            self._fail(mismatch(self.info.run_id, event_id, event, command, self._source(at)))
        self._matched = at + 1
        if isinstance(command, RequestCancelActivity) and not command.wait:
            self._canceled_with = command.command_id

    def _end_matching(self, event_id: int) -> None:
        """The batch of the last workflow task is over: every command must have been in it."""
        at, commands = self._matched, self._commands
        if at < len(commands):
            self._fail(mismatch(self.info.run_id, event_id, None, commands[at], self._source(at)))

    def _source(self, at: int) -> str:
        known = self._run.sources
        return known[at] if at < len(known) else self._run.standing()

    def _fail(self, error: OdinError) -> NoReturn:
        self._error = error
        raise error


def _is_later(event: e.Event) -> bool:
    return not isinstance(event, MESSAGES)
