"""The code's side of a run in memory: its main function and signal handlers, and what they ask for.

`execute` is the one way in, for replay and for live execution: it delivers the messages of a task,
then applies the other events one by one and runs after each whatever is ready. The messages come
first and together, so that a run that ends by one of them has handled all that it was shown: what
it has `seen` is never shown to its successor. `odin.workflow` is the author's way to the rest.
"""

from __future__ import annotations

import inspect
from contextvars import Context
from itertools import zip_longest
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odin.core import events as e
from odin.core import sources
from odin.core.commands import (
    CancelTimer,
    CancelWorkflow,
    Command,
    CompleteWorkflow,
    FailWorkflow,
    StartTimer,
)
from odin.core.definition import WorkflowDefinition, WorkflowInfo, signature_of
from odin.core.failures import ContinueAsNewError, EvictedError, WorkflowTaskError
from odin.core.handles import ActivityHandle
from odin.core.loop import WorkflowLoop
from odin.core.loop_parts import DeterministicTask
from odin.core.payload import Payload, encode
from odin.core.verdict import Verdict, judge, run_failure, task_error
from odin.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MESSAGES: Final = (e.WorkflowExecutionSignaled, e.WorkflowExecutionCancelRequested)
"""What clients send: delivered before anything else of the same task."""


class Run:
    """A run's code and state.

    Args:
        definition: The workflow's code.
        info: Who the run is.
        cpu_time: CPU seconds used by the calling thread.
    """

    def __init__(
        self, definition: WorkflowDefinition, info: WorkflowInfo, cpu_time: Callable[[], float]
    ) -> None:
        self.definition = definition
        self.info = info
        self.loop = WorkflowLoop(self, cpu_time)  # type: ignore[abstract] # the rest is refused
        self.is_replaying = False
        self.seen = 0
        self.cancel_requested = False
        self.cancel_reason = ""
        self.running_handlers = 0
        self.read_only = ""
        self.notices: list[str] = []
        self.commands: list[Command] = []
        self.sources: list[str] = []
        self.started: e.WorkflowExecutionStarted | None = None
        self._next_command_id = 1
        self._pending: dict[int, ActivityHandle[Any]] = {}
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._kept_signals: dict[str, list[tuple[Payload, ...]]] = {}
        self._function: Callable[..., Any] | None = None
        self._arguments: list[Any] = []
        self._main: DeterministicTask[None] | None = None
        self._random: Random | None = None

    # The instance's side.

    def execute(self, batch: Sequence[e.Event], time_us: int, seen: int) -> list[Command]:
        """Run one workflow task: apply `batch` in its order; return what the code asks for.

        Raises:
            WorkflowTaskError: The task failed; this object is of no more use.
        """
        loop = self.loop
        self.seen = seen
        commands: list[Command] = []
        self.commands = commands
        self.sources = []
        loop.begin(time_us)
        outer = loop.enter()
        try:
            if self._function is None:
                self._prepare()
            for event, following in zip_longest(batch, batch[1:]):
                if loop.stopped:
                    break
                _APPLIERS[type(event)](self, event)
                if not isinstance(following, MESSAGES):
                    loop.drain()
            loop.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever user code raised fails the task, not the worker
            raise task_error(error, self.standing()) from error
        finally:
            loop.leave(outer)
        return commands

    def standing(self) -> str:
        """Return the line at which the main function stands, as `file:line`."""
        return "" if self._main is None else sources.of_coroutine(self._main.get_coro())

    def unwind(self) -> None:
        """Unwind all code; nothing of what it still does has an effect."""
        outer = self.loop.enter()
        try:
            self.loop.unwind()
        finally:
            self.loop.leave(outer)
        self._main = self._function = None
        self._pending.clear()
        self._handlers.clear()

    def take_notices(self) -> tuple[str, ...]:
        """Return what the worker should log, once."""
        notices, self.notices = tuple(self.notices), []
        return notices

    # Applying events.

    def _prepare(self) -> None:
        """Make the object that holds the run's state, before any signal handler needs it."""
        definition = self.definition
        if self.started is None:
            raise WorkflowTaskError("the history does not begin with workflow_execution_started")
        self._function = definition.run
        try:
            self._arguments = definition.signature().decode(self.started.input)
        except PayloadError as error:
            raise WorkflowTaskError(
                f"the arguments of workflow {definition.name!r} do not fit: {error}"
            ) from error
        if definition.cls is not None:
            try:
                Context().run(self._construct, definition.cls)
            except Exception as error:  # noqa: BLE001 - judged like an error of the run itself
                self._escape(error, is_main=True)

    def _construct(self, cls: type) -> None:
        made = cls(*self._arguments) if self.definition.has_init else cls()
        self._function = self.definition.run.__get__(made)
        for name, function in self.definition.signals.items():
            self._handlers[name] = function.__get__(made)

    def _on_started(self, _event: e.WorkflowExecutionStarted) -> None:
        if self.cancel_requested:  # as with any task of asyncio that is cancelled before it starts
            self._close(CancelWorkflow())
        else:
            self._main = self.loop.create_task(self._run_main(), context=Context())

    def _on_cancel_requested(self, event: e.WorkflowExecutionCancelRequested) -> None:
        if self.cancel_requested:
            return
        self.cancel_requested = True
        self.cancel_reason = event.reason
        if self._main is not None:
            self._main.cancel()

    def _on_signal(self, event: e.WorkflowExecutionSignaled) -> None:
        if event.name in self._handlers:
            self._deliver(event.name, event.input)
        else:
            self._kept_signals.setdefault(event.name, []).append(event.input)

    def _on_timer_fired(self, event: e.TimerFired) -> None:
        self.loop.fire(event.command_id)

    def _on_activity_ended(self, event: Any) -> None:  # noqa: ANN401 - one of the four endings
        handle = self._pending.pop(event.command_id, None)
        if handle is not None and not handle.done():
            _ENDINGS[type(event)](handle, event)

    # Running the code.

    async def _run_main(self) -> None:
        try:
            result = await self._function(*self._arguments)  # type: ignore[misc] # prepared before any event
            what = f"the result of workflow {self.definition.name!r}"
            self._close(CompleteWorkflow(result=encode(result, what)))
        except (EvictedError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - judged: the run's end, or a failed task
            self._escape(error, is_main=True)

    async def _run_handler(self, function: Callable[..., Any], arguments: list[Any]) -> None:
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                await result
        except (EvictedError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - judged: the run's end, or a failed task
            self._escape(error, is_main=False)
        finally:
            self.running_handlers -= 1

    def _escape(self, error: BaseException, *, is_main: bool) -> None:
        """Turn what left the code into the run's end, or into the failure of the task."""
        if isinstance(error, ContinueAsNewError):
            self._close(error.command)
            return
        verdict = judge(
            error, self.definition.failure_types, cancel_requested=self.cancel_requested
        )
        if verdict is Verdict.FAILED:
            self._close(FailWorkflow(failure=run_failure(error)))
        elif verdict is Verdict.BUG:
            self.loop.fault = self.loop.fault or error
            self.loop.stopped = True
        elif is_main:
            self._close(CancelWorkflow())

    def _close(self, command: Command) -> None:
        """End the run with `command`; nothing of the code runs after it."""
        self.issue(command)
        self.loop.stopped = True
        if self.running_handlers > 0:
            self.notice(
                f"the run ended while {self.running_handlers} signal handlers were unfinished:"
                " await workflow.wait_condition(workflow.all_handlers_finished) before returning"
            )

    def _deliver(self, name: str, payloads: tuple[Payload, ...]) -> None:
        function = self._handlers[name]
        try:
            arguments = signature_of(function).decode(payloads)
        except PayloadError as error:
            self.notice(f"signal {name!r} was dropped, it does not fit its handler: {error}")
            return
        self.running_handlers += 1
        handling = self._run_handler(function, arguments)
        _ = self.loop.create_task(handling, context=Context())  # the loop holds it

    # The author's side, by way of odin.workflow.

    def issue(self, command: Command) -> None:
        """Record that the code asks for something.

        Raises:
            EvictedError: The run leaves the memory.
            WorkflowTaskError: The code may only read here.
        """
        if self.loop.evicting:
            raise EvictedError
        if self.read_only:
            raise WorkflowTaskError(
                f"{self.read_only} may only read: {type(command).__name__} is not possible there"
            )
        self.commands.append(command)
        if self.is_replaying:
            self.sources.append(sources.caller())

    def check(self, condition: Callable[[], bool]) -> bool:
        """Return whether `condition` holds; it may not ask for anything."""
        before, self.read_only = self.read_only, "a condition of workflow.wait_condition"
        try:
            return bool(condition())
        finally:
            self.read_only = before

    def next_command_id(self) -> int:
        """Return the number of the next command."""
        command_id = self._next_command_id
        self._next_command_id = command_id + 1
        return command_id

    def expect(self, handle: ActivityHandle[Any]) -> None:
        """Resolve `handle` when the history tells how its activity ended."""
        self._pending[handle.command_id] = handle

    def start_timer(self, duration_ms: int, summary: str) -> int:
        """Ask for a timer; return its command id."""
        command_id = self.next_command_id()
        self.issue(StartTimer(command_id=command_id, duration_ms=duration_ms, summary=summary))
        return command_id

    def cancel_timer(self, command_id: int) -> None:
        """Ask for the end of a timer."""
        self.issue(CancelTimer(command_id=command_id))

    def set_signal_handler(self, name: str, function: Callable[..., Any] | None) -> None:
        """Register, replace or remove the handler of a signal; deliver what was kept for it."""
        if function is None:
            self._handlers.pop(name, None)
            return
        self._handlers[name] = function
        for arguments in self._kept_signals.pop(name, ()):
            self._deliver(name, arguments)

    def notice(self, text: str) -> None:
        """Tell the worker something that it should log; replay has told it before."""
        if not self.is_replaying:
            self.notices.append(text)

    @property
    def random(self) -> Random:
        """The run's own dice: the same throws at every replay."""
        if self._random is None:
            seed = self.started.seed if self.started is not None else 0
            self._random = Random(f"{seed}:{self.info.run_id}")  # noqa: S311 - must be repeatable
        return self._random


# ruff: noqa: SLF001 - the table is the class's own
_APPLIERS: Final[dict[type, Callable[[Run, Any], None]]] = {
    e.WorkflowExecutionStarted: Run._on_started,
    e.WorkflowExecutionSignaled: Run._on_signal,
    e.WorkflowExecutionCancelRequested: Run._on_cancel_requested,
    e.TimerFired: Run._on_timer_fired,
    e.ActivityTaskCompleted: Run._on_activity_ended,
    e.ActivityTaskFailed: Run._on_activity_ended,
    e.ActivityTaskTimedOut: Run._on_activity_ended,
    e.ActivityTaskCanceled: Run._on_activity_ended,
}
_ENDINGS: Final[dict[type, Callable[[ActivityHandle[Any], Any], None]]] = {
    e.ActivityTaskCompleted: ActivityHandle.on_completed,
    e.ActivityTaskFailed: ActivityHandle.on_failed,
    e.ActivityTaskTimedOut: ActivityHandle.on_timed_out,
    e.ActivityTaskCanceled: ActivityHandle.on_canceled,
}
