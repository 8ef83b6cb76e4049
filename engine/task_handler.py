"""What an engine does with a worker's message: load, decide, commit, answer.

As for clients (`handler.py`), but without a coroutine per message: if the run is in memory the
decision is taken within the call, and the answer is sent by the group that commits it. Messages of
one worker therefore share groups, and their answers frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from odin.core import commands, wire
from odin.core.decide import Decision
from odin.core.decide_client import NewRun
from odin.core.decide_workflow import decide_report, decide_task_failure, is_task_wanted
from odin.core.door import fit_failure
from odin.core.execution import AcceptedReport
from odin.errors import OdinError

from .loader import Loader
from .replies import Replies, accepted_of
from .run import HOLD_ROUNDS, Run
from .sessions import Session, Sessions
from .shards import Shards
from .store.errors import DamagedRunError
from .term import Term
from .ticket import GroupRaisedError

log = logging.getLogger(__name__)

RunMessage: TypeAlias = Any  # a message with seq, shard_id and run_id
Then: TypeAlias = "Callable[[Session, RunMessage, Term, Run, bool], None]"
_NO_RUN: Final = NewRun("", 0, 0)


class TaskHandler:
    """Answers claims and reports of workflow tasks; the base of what activities need too."""

    def __init__(
        self, shards: Shards, loader: Loader, sessions: Sessions, replies: Replies
    ) -> None:
        self.shards = shards
        self.loader = loader
        self.sessions = sessions
        self.replies = replies

    # --- how a message meets its run ------------------------------------------------------------

    def with_run(
        self, session: Session, message: RunMessage, then: Then, *, alone: bool = False
    ) -> None:
        """Call `then` with the message's run, at once if it is in memory."""
        term = self.shards.terms.get(message.shard_id)
        if term is None or not term.is_serving:
            self.not_owner(session, message)
            return
        run = term.runs.get(message.run_id)
        if run is not None:
            run.touched_at = self.shards.clock.boottime()
            then(session, message, term, run, alone)
        else:
            self.loader.with_run(
                term, message.run_id, partial(self._loaded, session, message, then, term, alone)
            )

    def _loaded(  # noqa: PLR0913, PLR0917 - a continuation: everything that waits for the run
        self,
        session: Session,
        message: RunMessage,
        then: Then,
        term: Term,
        alone: bool,  # noqa: FBT001 - positional, for partial
        run: Run | None,
        error: OdinError | None,
    ) -> None:
        if isinstance(error, DamagedRunError):
            self.memory(session, message, term, wire.NotWanted(message.seq))
        elif error is not None or not term.is_serving:
            self.not_owner(session, message)
        elif run is None:
            self.memory(session, message, term, wire.NotWanted(message.seq))
        else:
            then(session, message, term, run, alone)

    def not_owner(self, session: Session, message: RunMessage) -> None:
        """Tell the worker to ask the owner, under the same ids."""
        seq = getattr(message, "seq", 0)
        if seq:
            session.send(wire.NotOwner(seq, self.shards.entry(message.shard_id)))

    def memory(
        self, session: Session, message: RunMessage, term: Term, reply: wire.ToWorker
    ) -> None:
        """Answer from memory: once what the state stands on has committed, and under a lease."""

        def settled(error: OdinError | None) -> None:
            if error is not None or term.is_over:
                self.not_owner(session, message)
                return
            try:
                self.shards.check_lease()
            except OdinError:
                self.not_owner(session, message)
            else:
                session.send(reply)

        term.then(settled)

    def commit(  # noqa: PLR0913 - what to write, for whom, and what follows
        self,
        session: Session,
        message: RunMessage,
        term: Term,
        run: Run,
        decision: Decision,
        *,
        alone: bool,
        answer: Callable[[], None],
        again: Then,
    ) -> None:
        """Write the decision; answer with the group, or have the message repeated.

        A group that raises is decided anew, alone; one that raises alone has the worker ask again.
        """
        ticket = term.write(run, decision, alone=alone, after=answer)

        def failed(error: OdinError) -> None:
            if isinstance(error, GroupRaisedError) and not alone:
                self.with_run(session, message, again, alone=True)
            else:
                self.not_owner(session, message)

        ticket.otherwise(term.shard_id, failed)

    # --- claims of workflow tasks ---------------------------------------------------------------

    def claim(self, session: Session, message: wire.ClaimWorkflowTask) -> None:
        """Answer whether a workflow task is still wanted."""
        self.with_run(session, message, self._claim)

    def _claim(
        self,
        session: Session,
        message: wire.ClaimWorkflowTask,
        term: Term,
        run: Run,
        alone: bool,  # noqa: ARG002, FBT001 - a claim is owner memory, nothing is written
    ) -> None:
        taken = run.claimant not in ("", session.worker) and self.sessions.is_linked(run.claimant)
        if taken or not is_task_wanted(run.execution, message.number):
            self.memory(session, message, term, wire.NotWanted(message.seq))
            return
        run.claimant = session.worker
        session.held[message.run_id] = term.shard_id
        self.replies.grant(session, message, term, run)

    # --- reports of workflow tasks --------------------------------------------------------------

    def report(self, session: Session, message: wire.ReportWorkflowTask) -> None:
        """Judge the report of a workflow task that was run."""
        self.with_run(session, message, self._report)

    def _report(
        self,
        session: Session,
        message: wire.ReportWorkflowTask,
        term: Term,
        run: Run,
        alone: bool,  # noqa: FBT001 - positional, called through Then
    ) -> None:
        before = run.warm
        run.warm = session.worker if message.sticky else ""
        outcome = decide_report(
            run.execution,
            message,
            session.worker,
            session.hello.build_id,
            term.moment(run),
            self._successor(message, term),
        )
        if outcome.refused is not None:
            run.warm = before if before != session.worker else ""
            self._refuse(
                session, message, term, run, outcome.refused, outcome.decision, alone=alone
            )
            return
        accepted = outcome.accepted
        assert accepted is not None  # noqa: S101 - an outcome is either refused or accepted
        if outcome.decision is None:
            run.warm = before
            self.replies.accept(session, message, term, run, accepted)
            return
        run.rounds = 0
        run.hold_until_us = 0
        run.claimant = ""  # the next task, if there is one already, is anybody's
        session.held.pop(message.run_id, None)
        closed = not outcome.decision.execution.is_open
        reply = partial(self._accepted, session, message, term, run, accepted, closed=closed)
        self.commit(
            session,
            message,
            term,
            run,
            outcome.decision,
            alone=alone,
            answer=reply,
            again=self._report,
        )
        run.warm_event_id = accepted.last_event_id
        self._hold_push(session, run, term, outcome.decision)

    def _accepted(
        self,
        session: Session,
        message: wire.ReportWorkflowTask,
        term: Term,
        run: Run,
        accepted: AcceptedReport,
        *,
        closed: bool,
    ) -> None:
        events = run.events_after(accepted.seen, accepted.last_event_id)
        if events is None:
            self.replies.accept(session, message, term, run, accepted)
        else:
            session.send(accepted_of(message.seq, events, accepted, closed=closed))

    def _hold_push(self, session: Session, run: Run, term: Term, decision: Decision) -> None:
        """A pushed task is claimed by the worker that it goes to."""
        if decision.push:
            run.claimant = session.worker
            session.held[run.execution.run_id] = term.shard_id

    def _refuse(  # noqa: PLR0913 - the report, its run, and what is to be said of it
        self,
        session: Session,
        message: wire.ReportWorkflowTask,
        term: Term,
        run: Run,
        refused: str,
        decision: Decision | None,
        *,
        alone: bool,
    ) -> None:
        """Refuse a report, whole: the worker drops its warm state."""
        if run.claimant == session.worker:
            run.claimant = ""
            session.held.pop(message.run_id, None)
        reply = wire.WorkflowTaskRefused(message.seq, refused)
        if decision is None:
            self.memory(session, message, term, reply)
            return
        self.commit(
            session,
            message,
            term,
            run,
            decision,
            alone=alone,
            answer=partial(session.send, reply),
            again=self._report,
        )
        if refused == "unseen":
            run.rounds += 1
            spare_us = max(0, decision.execution.workflow_task.due_us - term.now_us())
            run.hold_until_us = term.now_us() + spare_us * 2 ** max(0, run.rounds - HOLD_ROUNDS)

    def _successor(self, message: wire.ReportWorkflowTask, term: Term) -> NewRun:
        """Return ids for the next run of the chain, if the report ends in one."""
        if message.commands and isinstance(message.commands[-1], commands.ContinueAsNew):
            ids = self.shards.ids
            return NewRun(ids.run_id(), term.shard_id, ids.batch_random() >> 1)
        return _NO_RUN

    def report_failure(self, session: Session, message: wire.ReportWorkflowTaskFailure) -> None:
        """Record that a workflow task could not be run."""
        self.with_run(session, message, self._report_failure)

    def _report_failure(
        self,
        session: Session,
        message: wire.ReportWorkflowTaskFailure,
        term: Term,
        run: Run,
        alone: bool,  # noqa: FBT001 - positional, called through Then
    ) -> None:
        failure = fit_failure(message.failure)
        message = msgspec.structs.replace(message, failure=failure)
        decision = decide_task_failure(run.execution, message, term.moment())
        if run.warm == session.worker:
            run.warm = ""
        reply = wire.WorkflowTaskRefused(message.seq, "failed" if decision else "stale")
        if decision is None:
            self.memory(session, message, term, reply)
            return
        log.warning(
            "workflow task failed",
            extra={
                "workflow_id": run.execution.workflow_id,
                "run_id": message.run_id,
                "failure": message.failure.message[:500],
                "source": message.failure.source,
            },
        )
        run.claimant = ""
        session.held.pop(message.run_id, None)
        self.commit(
            session,
            message,
            term,
            run,
            decision,
            alone=alone,
            answer=partial(session.send, reply),
            again=self._report_failure,
        )
