"""Activity attempts: run, watched, stopped in time, and reported until the report is answered.

Async functions are tasks on the event loop; plain functions run in threads, with the context
variables of their attempt. A thread cannot be stopped: it is told, and keeps its slot until then.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from odin import activity
from odin.core.failures import CancelledError, failure_of
from odin.core.payload import Failure, Payload, clean_text, encode, encode_all
from odin.core.wire import (
    ActivityOutcome,
    ActivityReportAnswered,
    ActivityTaskGranted,
    ReportActivityTask,
)
from odin.errors import InvalidArgumentError, OdinError, PayloadError
from odin.worker.heartbeats import Heartbeats
from odin.worker.postbox import RESULT, Ask, Postbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from odin.worker.registry import Activity, Registry
    from odin.worker.telemetry import WorkerTelemetry

COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELED: Final = "canceled"

STOP_DEADLINE: Final = "deadline"
STOP_NO_CONTACT: Final = "no contact"
STOP_SHUTDOWN: Final = "worker shutdown"

log = logging.getLogger(__name__)


class _Beats:
    """The heartbeats of one attempt, made when they are first needed."""

    __slots__ = ("ended", "made", "make")

    def __init__(self, make: Callable[[], Heartbeats]) -> None:
        self.make = make
        self.made: Heartbeats | None = None
        self.ended = False

    def beat(self, details: tuple[Payload, ...]) -> None:
        """Take a heartbeat of the activity; from its own thread."""
        if self.made is None:
            if self.ended:
                return
            self.made = self.make()
        self.made.beat(details)

    def end(self, *, flush: bool) -> None:
        """The attempt is over."""
        self.ended = True
        if self.made is not None:
            self.made.end(flush=flush)


class Attempt:
    """One attempt that this worker runs."""

    __slots__ = (
        "beats", "begun", "context", "deadline_timer", "grant", "is_async", "stop_reason", "task",
    )  # fmt: skip

    def __init__(self, grant: ActivityTaskGranted, beats: _Beats, *, is_async: bool) -> None:
        self.grant = grant
        self.beats = beats
        self.is_async = is_async
        self.context = activity.Context(partial(_info, grant), beats.beat)
        self.task: asyncio.Task[None] | None = None
        self.deadline_timer: asyncio.TimerHandle | None = None
        self.stop_reason = ""
        self.begun = False

    def stop(self, reason: str) -> None:
        """Tell the attempt to stop: by the flag, and, for async functions, by cancellation."""
        if self.stop_reason:
            return
        self.stop_reason = reason
        self.context.cancel(reason)
        if self.is_async:
            self.interrupt(reason)

    def interrupt(self, reason: str) -> None:
        """Cancel the task. One that has not begun looks at `stop_reason` instead when it does."""
        if self.task is not None and self.begun:
            self.task.cancel(reason)


class AttemptsHost(Protocol):
    """What the attempts need of the worker."""

    def attempt_finished(self, claim_token: str) -> None:
        """The attempt's slot is free."""
        ...

    def attempt_answered(self, claim_token: str) -> None:
        """Nothing more is to be said of the attempt."""
        ...

    def send_to_owner(self, shard_id: int, message: object) -> bool:
        """Send without waiting for an answer; False if there is no owner to send to."""
        ...


class Attempts:
    """The attempts of one worker.

    Args:
        registry: The activities.
        postbox: Where results go.
        host: The worker.
        telemetry: Takes the numbers.
        executor: Returns where plain functions run; called when the first one comes.
    """

    def __init__(
        self,
        registry: Registry,
        postbox: Postbox,
        host: AttemptsHost,
        telemetry: WorkerTelemetry,
        executor: Callable[[], Executor],
    ) -> None:
        self._registry = registry
        self._postbox = postbox
        self._host = host
        self._telemetry = telemetry
        self._executor = executor
        self._running: dict[str, Attempt] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Run attempts in this group from now on."""
        self._group = group

    def stop_starting(self) -> None:
        """Give back what is granted from now on, as failed and to be tried again."""
        self._stopping = True

    async def wait_empty(self) -> None:
        """Return once no attempt runs."""
        await self._empty.wait()

    def start(self, grant: ActivityTaskGranted) -> None:
        """Run a granted attempt."""
        token = grant.claim_token
        left_seconds = (
            None if grant.deadline_us is None else (grant.deadline_us - grant.now_us) / 1e6
        )
        if left_seconds is not None and left_seconds <= 0:
            self._host.attempt_finished(token)
            self._host.attempt_answered(token)
            return
        if self._group is None or self._stopping:
            self._host.attempt_finished(token)
            self._report(grant, _stopped(STOP_SHUTDOWN))
            return
        known = self._registry.activities.get(grant.activity_type)
        is_async = known is None or known.is_async
        loop = asyncio.get_running_loop()
        send = partial(self._host.send_to_owner, grant.header.shard_id)
        beats = _Beats(partial(Heartbeats, grant, send, loop, auto=is_async))
        if grant.heartbeat_ms is not None:
            beats.made = beats.make()
        attempt = Attempt(grant, beats, is_async=is_async)
        self._running[token] = attempt
        self._empty.clear()
        if left_seconds is not None:
            attempt.deadline_timer = loop.call_later(left_seconds, attempt.stop, STOP_DEADLINE)
        attempt.task = self._group.create_task(self._run(attempt, known))

    def cancel(self, claim_token: str, reason: str) -> bool:
        """The engine no longer wants the attempt. Returns whether it runs here."""
        attempt = self._running.get(claim_token)
        if attempt is None:
            return False
        attempt.stop(reason)
        return True

    def stop_all(self, reason: str) -> None:
        """Tell every attempt to stop, threads included; threads are waited for no longer."""
        for attempt in list(self._running.values()):
            attempt.stop(reason)
            if not attempt.is_async:
                attempt.interrupt(reason)

    def check_contact(self, linked: Callable[[int], bool], now: float, *, isolated: bool) -> None:
        """Stop the attempts whose owner must by now believe that this worker is dead.

        Args:
            linked: Whether a shard's owner can be reached.
            now: Seconds that only go forward.
            isolated: Whether no engine at all can be reached.
        """
        for attempt in list(self._running.values()):
            beats = attempt.beats.made
            if beats is not None and beats.lost_contact(
                linked(attempt.grant.header.shard_id), now, isolated=isolated
            ):
                attempt.stop(STOP_NO_CONTACT)

    async def _run(self, attempt: Attempt, known: Activity | None) -> None:
        grant = attempt.grant
        outcome: ActivityOutcome | None = None
        attempt.begun = True
        try:
            if attempt.stop_reason:
                outcome = _stopped(attempt.stop_reason)
            else:
                outcome = await self._outcome(attempt, known)
        finally:
            self._end(attempt, outcome)
        self._telemetry.count("activities")
        if attempt.stop_reason == STOP_DEADLINE:
            # The engine judges the deadline by its own clock; a report of ours could only race it.
            self._host.attempt_answered(grant.claim_token)
        else:
            self._report(grant, outcome)

    def _end(self, attempt: Attempt, outcome: ActivityOutcome | None) -> None:
        if attempt.deadline_timer is not None:
            attempt.deadline_timer.cancel()
        attempt.beats.end(flush=outcome is not None and outcome.how != COMPLETED)
        self._running.pop(attempt.grant.claim_token, None)
        if not self._running:
            self._empty.set()
        self._host.attempt_finished(attempt.grant.claim_token)

    async def _outcome(self, attempt: Attempt, known: Activity | None) -> ActivityOutcome:
        """Run the function and return what became of it."""
        if known is None:
            # Not for good: another worker of the queue may know it, and this one may be older.
            text = self._registry.unknown_activity(attempt.grant.activity_type)
            log.error(
                "activity type unknown",
                extra={
                    "activity_type": attempt.grant.activity_type,
                    "attempt": attempt.grant.attempt,
                    "run_id": attempt.grant.header.run_id,
                },
            )
            failure = Failure(clean_text(text), "application", "UnknownActivityType")
            return ActivityOutcome(FAILED, failure=failure)
        try:
            arguments = known.arguments(attempt.grant.input)
        except PayloadError as error:
            return _refusal(str(error), "PayloadError")
        try:
            value = await self._call(attempt, known, arguments)
        except asyncio.CancelledError as error:
            return self._unhappy(attempt, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
            return self._unhappy(attempt, error)
        try:
            return ActivityOutcome(COMPLETED, encode(value, f"the result of {known.name!r}"))
        except PayloadError as error:
            return _refusal(str(error), "PayloadError")

    def _unhappy(self, attempt: Attempt, error: BaseException) -> ActivityOutcome:
        """Return what an exception of user code makes of the attempt."""
        if isinstance(error, asyncio.CancelledError):
            if not attempt.stop_reason:
                raise error  # the worker itself is being cancelled
            return _stopped(attempt.stop_reason)
        if isinstance(error, CancelledError) and attempt.stop_reason:
            return _stopped(attempt.stop_reason, error.details)
        return self._failed(attempt, error)

    async def _call(self, attempt: Attempt, known: Activity, arguments: list[Any]) -> Any:  # noqa: ANN401 - user values have any type
        activity.current.set(attempt.context)
        if known.is_async:
            return await known.fn(*arguments)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._executor(), partial(context.run, known.fn, *arguments)
        )

    def _failed(self, attempt: Attempt, error: BaseException) -> ActivityOutcome:
        grant = attempt.grant
        self._telemetry.count("activity_failures")
        log.info(
            "activity failed",
            extra={
                "activity_type": grant.activity_type,
                "attempt": grant.attempt,
                "run_id": grant.header.run_id,
                "error_type": type(error).__name__,
            },
        )
        if isinstance(error, OdinError):
            text = clean_text(str(error))
            failure = Failure(text, type=type(error).__name__, non_retryable=not error.retryable)
        else:
            failure = failure_of(error)
        return ActivityOutcome(FAILED, failure=failure)

    def _report(self, grant: ActivityTaskGranted, outcome: ActivityOutcome) -> None:
        shard_id, run_id = grant.header.shard_id, grant.header.run_id

        def make(seq: int) -> ReportActivityTask:
            return ReportActivityTask(
                seq,
                shard_id,
                run_id,
                grant.command_id,
                grant.attempt,
                grant.claim_token,
                outcome,
            )

        def unsendable(error: InvalidArgumentError) -> None:
            self._report(grant, _refusal(str(error), "ResultTooLarge"))

        self._postbox.post(
            Ask(
                ("a", grant.claim_token),
                shard_id,
                RESULT,
                make,
                partial(self._answered, grant),
                on_unsendable=unsendable,
            )
        )

    def _answered(self, grant: ActivityTaskGranted, answer: object) -> None:
        if not (isinstance(answer, ActivityReportAnswered) and answer.accepted):
            self._telemetry.count("results_not_accepted")
            log.info(
                "result not accepted",
                extra={"run_id": grant.header.run_id, "attempt": grant.attempt},
            )
        self._host.attempt_answered(grant.claim_token)


def _refusal(message: str, type_name: str) -> ActivityOutcome:
    failure = Failure(clean_text(message), "application", type_name, non_retryable=True)
    return ActivityOutcome(FAILED, failure=failure)


def _stopped(reason: str, details: tuple[object, ...] = ()) -> ActivityOutcome:
    if reason in {STOP_SHUTDOWN, STOP_NO_CONTACT, STOP_DEADLINE}:
        text = f"the worker stopped the attempt: {reason}"
        return ActivityOutcome(FAILED, failure=Failure(text, "worker", "WorkerStopped"))
    return ActivityOutcome(CANCELED, details=_encoded(details))


def _encoded(details: tuple[object, ...]) -> tuple[Payload, ...]:
    try:
        return encode_all(details, "detail")
    except PayloadError as error:
        return encode_all((f"details were dropped: {error}",))


def _info(grant: ActivityTaskGranted) -> activity.Info:
    header = grant.header
    return activity.Info(
        grant.activity_id,
        grant.activity_type,
        grant.attempt,
        header.namespace,
        header.workflow_id,
        header.run_id,
        header.workflow_type,
        grant.task_queue,
        activity.instant(grant.scheduled_us),
        activity.instant(grant.now_us),
        None if grant.deadline_us is None else activity.instant(grant.deadline_us),
        _span(grant.start_to_close_ms),
        _span(grant.heartbeat_ms),
        f"{header.workflow_id}/{header.run_id}/{grant.activity_id}",
        grant.heartbeat_details,
    )


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)
