"""A tiny owner for tests: it feeds the decide functions, keeps whole histories, and judges each
decision by rules of its own (`decide_judge`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from odin.core import commands as c
from odin.core import requests as q
from odin.core import wire
from odin.core.decide import Decision, Moment
from odin.core.decide_activity import (
    ClaimOutcome,
    decide_activity_report,
    decide_claim,
    decide_release,
    decide_republish_activities,
)
from odin.core.decide_client import (
    NewRun,
    StartOutcome,
    decide_cancel,
    decide_signal,
    decide_start,
    decide_terminate,
)
from odin.core.decide_due import Beat, Liveness, decide_due
from odin.core.decide_workflow import (
    ReportOutcome,
    decide_report,
    decide_republish_task,
    decide_task_failure,
    is_task_wanted,
)
from odin.core.events import Event, HistoryEvent, from_history
from odin.core.execution import Execution, pack_pending, unpack_pending
from odin.core.history_limits import HISTORY_LIMITS, HistoryLimits
from odin.core.payload import Failure, Payload, encode
from tests.core.decide_judge import Batch, judge

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
HASH = b"h" * 16


@dataclass(frozen=True)
class Grant:
    """What a worker knows of a workflow task that it has claimed."""

    number: int
    task_token: int
    seen: int
    time_us: int


@dataclass
class World:
    """One workflow id and its runs, driven by hand. `run` is the newest one."""

    now_us: int = START_US
    range_id: int = 7
    sticky: bool = False
    limits: HistoryLimits = HISTORY_LIMITS
    executions: dict[str, Execution] = field(default_factory=dict)
    histories: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    batches: dict[str, list[Batch]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    beats: dict[int, Beat] = field(default_factory=dict)
    grace_until_us: int = 0
    term_began_us: int = 0
    count: int = 0
    latest: str = ""

    @property
    def run(self) -> Execution:
        return self.executions[self.latest]

    @property
    def events(self) -> list[Event]:
        return [from_history(stored) for stored in self.histories[self.latest]]

    @property
    def types(self) -> list[str]:
        return [stored.type for stored in self.histories[self.latest]]

    @property
    def last(self) -> Decision:
        return self.decisions[-1]

    @property
    def liveness(self) -> Liveness:
        return Liveness(self.beats, self.grace_until_us, self.term_began_us)

    def next_number(self) -> int:
        self.count += 1
        return self.count

    def moment(self) -> Moment:
        return Moment(
            self.now_us,
            self.range_id,
            10_000 + self.next_number(),
            sticky=self.sticky,
            limits=self.limits,
        )

    def run_id(self, number: int) -> str:
        return f"01890a5d-ac96-774b-bcce-{number:012d}"

    # --- taking decisions -----------------------------------------------------------------------

    def take(self, decision: Decision | None) -> Decision | None:
        """Judge a decision and move on to the state after it."""
        if decision is None:
            return None
        self.decisions.append(decision)
        for one in (*decision.also, decision) if decision.is_new else (decision, *decision.also):
            run_id = one.execution.run_id
            history = self.histories.setdefault(run_id, [])
            batches = self.batches.setdefault(run_id, [])
            judge(self.executions.get(run_id), history, batches, one)
            self.executions[run_id] = one.execution
            if one.is_new:
                self.latest = run_id
        return decision

    def unchanged(self, call: Any, *args: Any) -> Any:  # noqa: ANN401 - any decide function
        """Call a decide function on the newest run; the run that goes in must not change."""
        run = self.executions.get(self.latest)
        before = None if run is None else msgspec.msgpack.encode(run)
        try:
            return call(run, *args)
        finally:
            if run is not None:
                assert msgspec.msgpack.encode(run) == before

    # --- clients --------------------------------------------------------------------------------

    def start(self, **fields: Any) -> StartOutcome:  # noqa: ANN401 - fields of StartWorkflow
        given = {
            "workflow_id": "order-1",
            "workflow_type": "order",
            "request_id": f"start-{self.next_number()}",
        } | fields
        new = NewRun(self.run_id(self.next_number()), 3, 77 + self.count)
        outcome: StartOutcome = self.unchanged(
            decide_start, q.StartWorkflow(**given), new, self.moment(), HASH
        )
        self.take(outcome.decision)
        return outcome

    def signal(self, name: str = "go", *values: object, request_id: str = "") -> Decision:
        request = q.SignalWorkflow(
            workflow_id="order-1",
            name=name,
            request_id=request_id or f"signal-{self.next_number()}",
            input=tuple(encode(value) for value in values),
        )
        decision: Decision = self.unchanged(decide_signal, request, self.moment(), HASH)
        self.take(decision)
        return decision

    def cancel(self, reason: str = "") -> Decision:
        request = q.RequestCancelWorkflow(
            workflow_id="order-1", request_id=f"cancel-{self.next_number()}", reason=reason
        )
        decision: Decision = self.unchanged(decide_cancel, request, self.moment(), HASH)
        self.take(decision)
        return decision

    def terminate(self, reason: str = "") -> Decision:
        request = q.TerminateWorkflow(
            workflow_id="order-1", request_id=f"end-{self.next_number()}", reason=reason
        )
        decision: Decision = self.unchanged(decide_terminate, request, self.moment(), HASH)
        self.take(decision)
        return decision

    # --- workflow tasks -------------------------------------------------------------------------

    def grant(self) -> Grant:
        """Claim the scheduled workflow task, as the owner's reply would describe it."""
        run = self.run
        assert is_task_wanted(run, run.workflow_task.number), run.workflow_task
        time_us = max(self.now_us, run.last_event_us, run.workflow_task.last_time_us)
        return Grant(run.workflow_task.number, run.task_token, run.next_event_id - 1, time_us)

    def report(
        self,
        *issued: c.Command,
        grant: Grant | None = None,
        worker: str = "w1",
        report_id: str = "",
        changes: dict[str, int] | None = None,
    ) -> ReportOutcome:
        """Report the workflow task of `grant` (a fresh one by default) with these commands."""
        held = grant if grant is not None else self.grant()
        report = wire.ReportWorkflowTask(
            seq=1,
            report_id=report_id or f"report-{self.next_number()}",
            shard_id=3,
            run_id=self.latest,
            number=held.number,
            task_token=held.task_token,
            seen=held.seen,
            time_us=held.time_us,
            commands=issued,
        )
        report = msgspec.structs.replace(report, **(changes or {}))
        successor = NewRun(self.run_id(self.next_number()), 3, 99 + self.count)
        outcome: ReportOutcome = self.unchanged(
            decide_report, report, worker, "build-1", self.moment(), successor
        )
        self.take(outcome.decision)
        return outcome

    def fail_task(
        self, message: str = "bug", grant: Grant | None = None, report_id: str = ""
    ) -> Decision | None:
        held = grant if grant is not None else self.grant()
        report = wire.ReportWorkflowTaskFailure(
            seq=1,
            report_id=report_id or f"report-{self.next_number()}",
            shard_id=3,
            run_id=self.latest,
            number=held.number,
            task_token=held.task_token,
            failure=Failure(message=message, kind="worker"),
        )
        return self.take(self.unchanged(decide_task_failure, report, self.moment()))

    def republish_task(self) -> Decision | None:
        return self.take(self.unchanged(decide_republish_task, self.moment()))

    # --- activities -----------------------------------------------------------------------------

    def claim(
        self, command_id: int = 1, held: str = "c1", worker: str = "w1", attempt: int | None = None
    ) -> ClaimOutcome:
        """Claim an activity; the coming attempt by default."""
        if attempt is None:
            pending = self.run.activities.get(command_id)
            attempt = 1 if pending is None else pending.attempt + 1
        outcome: ClaimOutcome = self.unchanged(
            decide_claim, command_id, attempt, held, worker, self.moment()
        )
        self.take(outcome.decision)
        return outcome

    def finish(
        self,
        command_id: int = 1,
        held: str = "c1",
        outcome: wire.ActivityOutcome | None = None,
        details: tuple[Payload, ...] = (),
    ) -> Decision | None:
        """Report the end of an attempt; completed with 42 by default."""
        how = outcome or wire.ActivityOutcome("completed", encode(42))
        decision = self.unchanged(
            decide_activity_report, command_id, held, how, self.moment(), details
        )
        return self.take(decision)

    def fail(self, command_id: int = 1, held: str = "c1", **fields: Any) -> Decision | None:  # noqa: ANN401 - fields of Failure
        failure = Failure(**({"message": "no", "type": "Broken"} | fields))
        return self.finish(command_id, held, wire.ActivityOutcome("failed", failure=failure))

    def release(
        self, command_id: int = 1, attempt: int = 1, delay_ms: int = 500
    ) -> Decision | None:
        return self.take(
            self.unchanged(decide_release, command_id, attempt, delay_ms, self.moment())
        )

    def republish_activities(self, *command_ids: int) -> Decision | None:
        return self.take(
            self.unchanged(decide_republish_activities, frozenset(command_ids), self.moment())
        )

    # --- time and owners ------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.now_us += round(seconds * SECOND_US)

    def due(self) -> Decision | None:
        """Let the owner act on what is due now."""
        return self.take(self.unchanged(decide_due, self.moment(), self.liveness))

    def beat(self, command_id: int = 1, *values: object) -> None:
        self.beats[command_id] = Beat(self.now_us, tuple(encode(value) for value in values))

    def take_over(self) -> None:
        """A new owner loads the rows: owner memory is gone, the grace begins."""
        self.range_id += 1
        self.beats = {}
        self.term_began_us, self.grace_until_us = self.now_us, self.now_us + 5 * SECOND_US
        for run_id, run in self.executions.items():
            pending = unpack_pending(pack_pending(run))
            self.executions[run_id] = msgspec.structs.replace(
                run,
                workflow_task=pending.workflow_task,
                activities=pending.activities,
                timers=pending.timers,
                reports=pending.reports,
            )
            assert self.executions[run_id] == run

    def with_activity(self, **fields: Any) -> World:  # noqa: ANN401 - fields of ScheduleActivity
        """Start a run that has scheduled the activity 1, 10 ms later."""
        self.start()
        self.wait(0.01)
        self.report(activity(1, **fields))
        return self


def activity(command_id: int, **fields: Any) -> c.ScheduleActivity:  # noqa: ANN401 - any fields
    given = {
        "activity_id": str(command_id),
        "activity_type": "charge",
        "task_queue": "default",
    } | fields
    return c.ScheduleActivity(command_id=command_id, **given)


def timer(command_id: int, seconds: float = 5) -> c.StartTimer:
    return c.StartTimer(command_id=command_id, duration_ms=round(seconds * 1_000))


def complete(value: object = "done") -> c.CompleteWorkflow:
    return c.CompleteWorkflow(result=encode(value))
