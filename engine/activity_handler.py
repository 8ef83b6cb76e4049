"""Activities: durable claims, results, heartbeats, releases."""

from __future__ import annotations

from functools import partial

from odin.core import wire
from odin.core.decide_activity import decide_activity_report, decide_claim, decide_release
from odin.core.decide_due import Beat
from odin.core.door import fit_details, fit_outcome
from odin.core.execution import PendingActivity
from odin.errors import OdinError

from .run import Run
from .sessions import Session
from .task_handler import TaskHandler
from .term import Term


class ActivityHandler(TaskHandler):
    """Answers what workers say of activities."""

    def claim_activity(self, session: Session, message: wire.ClaimActivityTask) -> None:
        """Answer whether an attempt is still wanted; if so it is the claimant's, durably."""
        self.with_run(session, message, self._claim_activity)

    def _claim_activity(
        self,
        session: Session,
        message: wire.ClaimActivityTask,
        term: Term,
        run: Run,
        alone: bool,  # noqa: FBT001 - positional, called through Then
    ) -> None:
        outcome = decide_claim(
            run.execution,
            message.command_id,
            message.attempt,
            message.claim_token,
            session.worker,
            term.moment(),
        )
        activity = outcome.activity
        if activity is None:
            self.memory(session, message, term, wire.NotWanted(message.seq))
            return
        grant = partial(self.replies.grant_activity, session, message, term, run, activity)
        if outcome.decision is None:
            self._again(session, message, term, run, activity)
            return
        self.commit(
            session,
            message,
            term,
            run,
            outcome.decision,
            alone=alone,
            answer=grant,
            again=self._claim_activity,
        )

    def _again(
        self,
        session: Session,
        message: wire.ClaimActivityTask,
        term: Term,
        run: Run,
        activity: PendingActivity,
    ) -> None:
        """Answer a repeated claim: the same attempt, once everything before it has committed."""

        def settled(error: OdinError | None) -> None:
            try:
                if error is not None:
                    raise error
                term.check()
                self.shards.check_lease()
            except OdinError:
                self.not_owner(session, message)
            else:
                self.replies.grant_activity(session, message, term, run, activity)

        term.then(settled)

    def report_activity(self, session: Session, message: wire.ReportActivityTask) -> None:
        """Record how an attempt ended, if its claim is valid."""
        self.with_run(session, message, self._report_activity)

    def _report_activity(
        self,
        session: Session,
        message: wire.ReportActivityTask,
        term: Term,
        run: Run,
        alone: bool,  # noqa: FBT001 - positional, called through Then
    ) -> None:
        beat = run.beats.get(message.command_id)
        decision = decide_activity_report(
            run.execution,
            message.command_id,
            message.claim_token,
            fit_outcome(message.outcome),
            term.moment(run),
            beat.details if beat is not None else (),
        )
        if decision is None:
            reply = wire.ActivityReportAnswered(message.seq, accepted=False)
            self.memory(session, message, term, reply)
            return
        run.beats.pop(message.command_id, None)
        reply = wire.ActivityReportAnswered(message.seq, accepted=True)
        self.commit(
            session,
            message,
            term,
            run,
            decision,
            alone=alone,
            answer=partial(session.send, reply),
            again=self._report_activity,
        )
        if decision.push:
            holder = self.sessions.get(run.warm)
            if holder is not None:
                self._hold_push(holder, run, term, decision)

    def beat(self, session: Session, message: wire.Heartbeat) -> None:
        """Note that an attempt is alive; tell the worker if it is no longer wanted."""
        term = self.shards.terms.get(message.shard_id)
        if term is not None and term.is_serving:
            self.loader.with_run(term, message.run_id, partial(self._beat, session, message, term))

    def _beat(
        self,
        session: Session,
        message: wire.Heartbeat,
        term: Term,
        run: Run | None,
        error: OdinError | None,
    ) -> None:
        if error is not None or not term.is_serving:
            return
        activity = None if run is None else run.execution.activities.get(message.command_id)
        if (
            run is not None
            and activity is not None
            and activity.state == "started"
            and activity.claim_token == message.claim_token
        ):
            run.beats[message.command_id] = Beat(self.shards.now_us(), fit_details(message.details))
            if not activity.cancel_requested:
                return
        reason = "canceled" if activity is not None else "not wanted"
        stop = wire.CancelActivity(
            message.shard_id, message.run_id, message.command_id, message.claim_token, reason
        )

        def settled(failed: OdinError | None) -> None:
            if failed is None and not term.is_over:
                session.send(stop)

        term.then(settled)

    def release(self, _session: Session, message: wire.Release) -> None:
        """Take tasks back that the worker has no room for."""
        for entry in message.tasks:
            if entry.kind == "a":
                self._take_back(entry, message.delay_ms)

    def _take_back(self, entry: wire.TaskEntry, delay_ms: int) -> None:
        term = self.shards.terms.get(entry.shard_id)
        if term is None or not term.is_serving:
            return

        def loaded(run: Run | None, error: OdinError | None) -> None:
            if run is None or error is not None or not term.is_serving:
                return
            decision = decide_release(
                run.execution, entry.number, entry.attempt, delay_ms, term.moment()
            )
            if decision is not None:
                term.write(run, decision)

        self.loader.with_run(term, entry.run_id, loaded)

    def fetch(self, session: Session, message: wire.FetchHistory) -> None:
        """Send a page of history."""
        self.with_run(session, message, self._fetch)

    def _fetch(
        self,
        session: Session,
        message: wire.FetchHistory,
        term: Term,
        run: Run,
        alone: bool,  # noqa: ARG002, FBT001 - nothing is written
    ) -> None:
        self.replies.fetch(session, message, term, run)
