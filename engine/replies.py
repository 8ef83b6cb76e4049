"""Answers that carry history.

From memory where the tail reaches, else from Postgres, page by page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odin.core import wire
from odin.core.events import HistoryEvent, input_of
from odin.core.execution import AcceptedReport, Execution, PendingActivity
from odin.errors import OdinError

from .loader import Loader
from .run import Run
from .sessions import Session
from .shards import Shards
from .term import Term
from .work import Work

PAGE_BYTES: Final = 1024 * 1024
PAGE_EVENTS: Final = 2_000


class Replies:
    """Builds and sends the answers to claims, repeats and fetches."""

    def __init__(self, shards: Shards, loader: Loader, work: Work) -> None:
        self._shards = shards
        self._loader = loader
        self._work = work

    def grant(
        self, session: Session, message: wire.ClaimWorkflowTask, term: Term, run: Run
    ) -> None:
        """Send what a worker needs to run the workflow task that it has claimed."""
        execution = run.execution
        upper = execution.next_event_id - 1
        held = message.token is not None and message.token in (
            execution.state_token,
            execution.task_token,
        )
        after = min(message.last_event_id, upper) if held else 0
        now_us = max(execution.last_event_us, term.now_us())
        events = run.events_after(after, upper)
        if events is None:
            self._work.start(
                self._grant_cold(session, message, term, run, execution, after, now_us)
            )
        else:
            self._send(session, message, term, _granted(message, execution, events, after, now_us))

    async def _grant_cold(  # noqa: PLR0913, PLR0917 - the state as it was when the claim was granted
        self,
        session: Session,
        message: wire.ClaimWorkflowTask,
        term: Term,
        run: Run,
        execution: Execution,
        after: int,
        now_us: int,
    ) -> None:
        upper = execution.next_event_id - 1
        events = await self._read(session, message, term, run, after, upper)
        if events is not None:
            self._send(session, message, term, _granted(message, execution, events, after, now_us))

    def accept(
        self,
        session: Session,
        message: wire.ReportWorkflowTask,
        term: Term,
        run: Run,
        accepted: AcceptedReport,
    ) -> None:
        """Send the answer to an accepted report, or to its repeat."""
        self._work.start(self._accept_cold(session, message, term, run, accepted))

    async def _accept_cold(
        self,
        session: Session,
        message: wire.ReportWorkflowTask,
        term: Term,
        run: Run,
        accepted: AcceptedReport,
    ) -> None:
        events = await self._read(
            session, message, term, run, accepted.seen, accepted.last_event_id
        )
        if events is None:
            return
        closed = not run.execution.is_open
        self._send(
            session, message, term, accepted_of(message.seq, events, accepted, closed=closed)
        )

    def grant_activity(
        self,
        session: Session,
        message: wire.ClaimActivityTask,
        term: Term,
        run: Run,
        activity: PendingActivity,
    ) -> None:
        """Send what a worker needs to run the attempt that it has claimed.

        The claim has committed.
        """
        event_id = activity.scheduled_event_id
        events = run.events_after(event_id - 1, event_id)
        if events is None:
            self._work.start(self._grant_activity_cold(session, message, term, run, activity))
        else:
            session.send(
                _granted_activity(message, run, activity, events[0], self._shards.now_us())
            )

    async def _grant_activity_cold(
        self,
        session: Session,
        message: wire.ClaimActivityTask,
        term: Term,
        run: Run,
        activity: PendingActivity,
    ) -> None:
        event_id = activity.scheduled_event_id
        events = await self._read(session, message, term, run, event_id - 1, event_id)
        if events:
            session.send(
                _granted_activity(message, run, activity, events[0], self._shards.now_us())
            )

    def fetch(self, session: Session, message: wire.FetchHistory, term: Term, run: Run) -> None:
        """Send a page of history."""
        upper = min(message.upper_event_id, run.execution.next_event_id - 1)
        events = run.events_after(message.after_event_id, upper)
        if events is None:
            self._work.start(self._fetch_cold(session, message, term, run, upper))
        else:
            self._send(session, message, term, wire.HistoryPage(message.seq, page_of(events)))

    async def _fetch_cold(
        self, session: Session, message: wire.FetchHistory, term: Term, run: Run, upper: int
    ) -> None:
        events = await self._read(session, message, term, run, message.after_event_id, upper)
        if events is not None:
            self._send(session, message, term, wire.HistoryPage(message.seq, page_of(events)))

    async def _read(
        self,
        session: Session,
        message: wire.ClaimWorkflowTask
        | wire.ClaimActivityTask
        | wire.ReportWorkflowTask
        | wire.FetchHistory,
        term: Term,
        run: Run,
        after: int,
        upper: int,
    ) -> list[HistoryEvent] | None:
        """Return events once they have committed, or None after telling the worker to ask again."""
        try:
            await term.settled()
            return await self._loader.read_events(term, run, after, upper)
        except OdinError:
            session.send(wire.NotOwner(message.seq, self._shards.entry(message.shard_id)))
            return None

    def _send(
        self,
        session: Session,
        message: wire.ClaimWorkflowTask | wire.ReportWorkflowTask | wire.FetchHistory,
        term: Term,
        reply: wire.ToWorker,
    ) -> None:
        """Send an answer from memory: settled, and under a lease."""

        def settled(error: OdinError | None) -> None:
            try:
                if error is not None:
                    raise error
                term.check()
                self._shards.check_lease()
            except OdinError:
                session.send(wire.NotOwner(message.seq, self._shards.entry(message.shard_id)))
            else:
                session.send(reply)

        term.then(settled)


def header_of(execution: Execution) -> wire.RunHeader:
    """Return what a worker must know of the run beside its events."""
    return wire.RunHeader(
        execution.shard_id,
        execution.namespace,
        execution.workflow_id,
        execution.run_id,
        execution.workflow_type,
        execution.task_queue,
        execution.first_run_id,
    )


def page_of(events: Sequence[HistoryEvent]) -> tuple[HistoryEvent, ...]:
    """Return as many of the first events as one page holds, at least one of them."""
    size = 0
    for index, event in enumerate(events):
        size += len(event.attributes) + 64
        if index and (size > PAGE_BYTES or index >= PAGE_EVENTS):
            return tuple(events[:index])
    return tuple(events)


def accepted_of(
    seq: int, events: Sequence[HistoryEvent], accepted: AcceptedReport, *, closed: bool
) -> wire.WorkflowTaskAccepted:
    """Return the answer to an accepted report, with as many of its events as a page holds.

    The token covers all of them: a worker that gets fewer is told so, and keeps nothing warm.
    """
    page = page_of(events)
    newest = page[-1].event_id if page else accepted.seen
    return wire.WorkflowTaskAccepted(
        seq, page, accepted.token, closed, complete=newest >= accepted.last_event_id
    )


def _granted(
    message: wire.ClaimWorkflowTask,
    execution: Execution,
    events: Sequence[HistoryEvent],
    after: int,
    now_us: int,
) -> wire.WorkflowTaskGranted:
    task = execution.workflow_task
    return wire.WorkflowTaskGranted(
        seq=message.seq,
        header=header_of(execution),
        number=task.number,
        attempt=task.attempt,
        task_token=execution.task_token,
        time_us=max(now_us, task.last_time_us),
        events=page_of(events),
        upper_event_id=execution.next_event_id - 1,
        token=execution.state_token,
        from_start=after == 0,
    )


def _granted_activity(
    message: wire.ClaimActivityTask,
    run: Run,
    activity: PendingActivity,
    scheduled: HistoryEvent,
    now_us: int,
) -> wire.ActivityTaskGranted:
    deadline_us = None
    if activity.schedule_to_close_ms is not None:
        deadline_us = activity.scheduled_us + activity.schedule_to_close_ms * 1_000
    return wire.ActivityTaskGranted(
        seq=message.seq,
        header=header_of(run.execution),
        command_id=activity.command_id,
        activity_id=activity.activity_id,
        activity_type=activity.activity_type,
        task_queue=activity.task_queue,
        attempt=activity.attempt,
        claim_token=activity.claim_token,
        input=input_of(scheduled),
        scheduled_us=activity.scheduled_us,
        start_to_close_ms=activity.start_to_close_ms,
        heartbeat_ms=activity.heartbeat_ms,
        deadline_us=deadline_us,
        now_us=now_us,
        heartbeat_details=activity.heartbeat_details,
    )
