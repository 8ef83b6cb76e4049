"""Random clients, workers, clocks and owners against the decide functions; every decision is judged
(`decide_judge`), and what was answered once must be answered again."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odin.core import commands as c
from odin.core import requests as q
from odin.core.backoff import RetryPolicySpec
from odin.core.decide import Decision
from odin.core.decide_due import next_due_us
from odin.core.decide_workflow import ReportOutcome
from odin.core.execution import AcceptedReport, Execution, due_us
from odin.core.payload import Failure, encode
from odin.core.wire import ActivityOutcome
from odin.errors import RunClosedError, WorkflowAlreadyStartedError
from tests.core.decide_world import Grant, World, activity, complete, timer

SPANS = st.sampled_from([0.0, 0.2, 1.0, 4.9, 5.0, 10.0, 61.0, 700.0])
ENDS = st.sampled_from(["completed", "failed", "fatal", "canceled"])
WORKERS = st.sampled_from(["w1", "w2"])
TIMEOUTS = st.sampled_from([None, 1_000, 5_000, 60_000])
POLICIES = st.builds(
    RetryPolicySpec,
    maximum_attempts=st.sampled_from([0, 1, 2, 3]),
    non_retryable_error_types=st.sampled_from([(), ("Fatal",)]),
)
CLOSING: list[c.Command] = [
    c.ContinueAsNew(),
    complete(),
    c.FailWorkflow(failure=Failure("no")),
    c.CancelWorkflow(),
]


class Chain(RuleBasedStateMachine):
    """One workflow id under everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.next_command = 1
        self.grants: list[tuple[str, str, Grant]] = []
        self.claims: dict[str, tuple[str, int, int]] = {}
        self.answers: dict[tuple[str, str, str], AcceptedReport] = {}
        self.ended_tokens: set[str] = set()

    # --- helpers --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.world.run.is_open

    def new_ids(self, count: int) -> range:
        first = self.next_command
        self.next_command += count
        return range(first, first + count)

    def draw_commands(self, data: st.DataObject) -> list[c.Command]:
        world, issued = self.world, list[c.Command]()
        for command_id in self.new_ids(data.draw(st.sampled_from([1, 2, 0, 3]))):
            if data.draw(st.booleans()):
                issued.append(
                    activity(
                        command_id,
                        retry_policy=data.draw(POLICIES),
                        start_to_close_ms=data.draw(st.sampled_from([1_000, 60_000])),
                        schedule_to_start_ms=data.draw(TIMEOUTS),
                        schedule_to_close_ms=data.draw(TIMEOUTS),
                        heartbeat_ms=data.draw(TIMEOUTS),
                    )
                )
            else:
                issued.append(timer(command_id, data.draw(SPANS)))
        for command_id in sorted(world.run.timers):
            if data.draw(st.integers(0, 3)) == 2:
                issued.append(c.CancelTimer(command_id=command_id))
        for command_id in sorted(world.run.activities):
            if data.draw(st.integers(0, 3)) == 2:
                wait = data.draw(st.booleans())
                issued.append(c.RequestCancelActivity(command_id=command_id, wait=wait))
        if data.draw(st.integers(0, 5)) == 3:
            issued.append(data.draw(st.sampled_from(CLOSING)))
        return issued

    # --- clients --------------------------------------------------------------------------------

    @initialize(
        run_timeout=st.sampled_from([None, 20_000]),
        execution_timeout=st.sampled_from([None, 30_000]),
        delay=st.sampled_from([0, 3_000]),
    )
    def begin(self, run_timeout: int | None, execution_timeout: int | None, delay: int) -> None:
        self.world.start(
            run_timeout_ms=run_timeout,
            execution_timeout_ms=execution_timeout,
            start_delay_ms=delay,
        )

    @precondition(lambda self: not self.is_open or self.world.count % 9 == 0)
    @rule(
        conflict=st.sampled_from(q.CONFLICT_POLICIES),
        reuse=st.sampled_from(q.REUSE_POLICIES),
        signal=st.sampled_from([None, "go"]),
    )
    def start(self, conflict: str, reuse: str, signal: str | None) -> None:
        before = self.world.run
        try:
            outcome = self.world.start(
                id_conflict_policy=conflict, id_reuse_policy=reuse, signal_name=signal
            )
        except WorkflowAlreadyStartedError:
            assert self.world.run is before
            assert (conflict, signal) == (q.FAIL, None) or not before.is_open
            return
        if outcome.started:
            self.next_command = 1
            assert not self.world.executions[before.run_id].is_open
        else:
            assert outcome.run_id == before.run_id

    @precondition(lambda self: self.world.count % 5 == 0)
    @rule(kind=st.sampled_from(["signal", "signal", "cancel"]))
    def message(self, kind: str) -> None:
        self._message(self.world.signal if kind == "signal" else self.world.cancel)

    def _message(self, send: Callable[[], Decision]) -> None:
        was_open = self.is_open
        try:
            decision = send()
        except RunClosedError:
            assert not was_open
        else:
            assert was_open
            assert self.world.run.workflow_task.state != "none" or not decision.events
            assert decision.acknowledged is not None
            assert decision.acknowledged.run_id == self.world.latest

    @precondition(lambda self: self.is_open and self.world.count % 23 == 0)
    @rule()
    def terminate(self) -> None:
        self.world.terminate()

    # --- workflow tasks -------------------------------------------------------------------------

    @precondition(lambda self: self.world.run.workflow_task.state == "scheduled")
    @rule(worker=WORKERS)
    def claim_task(self, worker: str) -> None:
        self.grants.append((self.world.latest, worker, self.world.grant()))

    @precondition(lambda self: self.world.run.workflow_task.state == "scheduled")
    @rule(data=st.data(), worker=WORKERS, sticky=st.booleans(), meanwhile=st.integers(0, 3))
    def run_the_task(
        self,
        data: st.DataObject,
        worker: str,
        sticky: bool,  # noqa: FBT001 - drawn by the tool
        meanwhile: int,
    ) -> None:
        self.claim_task(worker)
        if meanwhile >= 2:
            self._message(self.world.signal if meanwhile == 2 else self.world.cancel)
        self._report(data, self.grants[-1], sticky=sticky)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), sticky=st.booleans())
    def report_task(self, data: st.DataObject, sticky: bool) -> None:  # noqa: FBT001 - drawn by the tool
        self._report(data, data.draw(st.sampled_from(self.grants[-3:])), sticky=sticky)

    def _report(self, data: st.DataObject, held: tuple[str, str, Grant], *, sticky: bool) -> None:
        run_id, worker, grant = held
        if run_id != self.world.latest:
            return
        world, before = self.world, self.world.run
        report_id = f"r-{len(self.answers)}-{world.count}"
        world.sticky = sticky
        issued = self.draw_commands(data)
        outcome = world.report(*issued, grant=grant, worker=worker, report_id=report_id)
        world.sticky = False
        self._judge_report(before, grant, issued, outcome)
        if outcome.accepted is not None:
            self.answers[run_id, worker, report_id] = outcome.accepted
            if world.latest != run_id:
                self.next_command = 1

    def _judge_report(
        self, before: Execution, grant: Grant, issued: list[c.Command], outcome: ReportOutcome
    ) -> None:
        run = self.world.executions[before.run_id]
        if outcome.refused == "unseen":
            assert isinstance(issued[-1], c.CLOSING_COMMANDS)
            assert run.last_message_event_id > grant.seen
            assert run.is_open
            assert run.workflow_task.state == "scheduled"
            assert outcome.decision is not None
            assert [task.entry.kind for task in outcome.decision.tasks] == ["w"]
        elif outcome.refused is not None:
            assert outcome.decision is None
        else:
            assert outcome.accepted is not None
            assert outcome.accepted.last_event_id == run.next_event_id - 1
            assert outcome.accepted.token == run.state_token
            if run.is_open and run.last_message_event_id > grant.seen:
                assert run.workflow_task.state == "scheduled"

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def repeat_a_report(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.answers)))
        run_id, worker, report_id = key
        kept = [one for one in self.world.executions[run_id].reports if one.worker == worker]
        if run_id != self.world.latest or kept != [self.answers[key]]:
            return
        outcome = self.world.report(
            complete(), grant=Grant(1, 1, 1, 1), worker=worker, report_id=report_id
        )
        assert outcome == ReportOutcome(accepted=self.answers[key])

    @precondition(lambda self: self.world.run.workflow_task.state == "scheduled")
    @rule()
    def fail_the_task(self) -> None:
        assert self.world.fail_task() is not None
        assert self.world.run.workflow_task.state == "backoff"

    # --- activities -----------------------------------------------------------------------------

    @precondition(lambda self: self.world.run.activities)
    @rule(data=st.data(), worker=WORKERS)
    def claim(self, data: st.DataObject, worker: str) -> None:
        world = self.world
        command_id = data.draw(st.sampled_from(sorted(world.run.activities)))
        pending = world.run.activities[command_id]
        token = f"c{world.next_number()}"
        outcome = world.claim(command_id, token, worker)
        if outcome.activity is None:
            assert outcome.decision is None
            return
        assert pending.state == "scheduled"
        assert outcome.activity.attempt == pending.attempt + 1
        self.claims[token] = (world.latest, command_id, outcome.activity.attempt)

    @precondition(
        lambda self: any(one.state == "scheduled" for one in self.world.run.activities.values())
    )
    @rule(data=st.data(), how=ENDS)
    def run_an_activity(self, data: st.DataObject, how: str) -> None:
        known = len(self.claims)
        self.claim(data, "w1")
        if len(self.claims) > known:
            self.world.wait(data.draw(SPANS))
            self._end(list(self.claims)[-1], how)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.claims)))
        run_id, command_id, attempt = self.claims[token]
        if run_id != self.world.latest:
            return
        held = self.world.run.activities.get(command_id)
        outcome = self.world.claim(command_id, token, attempt=attempt)
        assert outcome.decision is None
        if held is not None and held.claim_token == token:
            assert outcome.activity == held
        else:
            assert outcome.activity is None

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=ENDS)
    def end_an_attempt(self, data: st.DataObject, how: str) -> None:
        self._end(data.draw(st.sampled_from(list(self.claims)[-4:])), how)

    def _end(self, token: str, how: str) -> None:
        run_id, command_id, _ = self.claims[token]
        if run_id != self.world.latest:
            return
        held = self.world.run.activities.get(command_id)
        valid = held is not None and held.claim_token == token
        failure = Failure("no", type="Fatal" if how == "fatal" else "Broken")
        outcome = {
            "completed": ActivityOutcome("completed", encode(1)),
            "canceled": ActivityOutcome("canceled"),
        }.get(how, ActivityOutcome("failed", failure=failure))
        decision = self.world.finish(command_id, token, outcome)
        assert (decision is not None) == valid
        assert not (valid and token in self.ended_tokens)
        self.ended_tokens.add(token)

    @precondition(lambda self: self.world.run.activities)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        command_id = data.draw(st.sampled_from(sorted(self.world.run.activities)))
        pending = self.world.run.activities[command_id]
        decision = self.world.release(command_id, pending.attempt + 1)
        assert (decision is not None) == (pending.state == "scheduled")
        assert self.world.run.activities[command_id].attempt == pending.attempt

    @precondition(lambda self: self.world.run.activities)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        self.world.beat(data.draw(st.sampled_from(sorted(self.world.run.activities))), 1)

    # --- time and owners ------------------------------------------------------------------------

    @rule(seconds=SPANS)
    def time_passes(self, seconds: float) -> None:
        """Time passes, and the owner acts on what is due then."""
        self.world.wait(seconds)
        world, before = self.world, self.world.run
        expected = next_due_us(before, world.liveness)
        decision = world.due()
        assert (decision is not None) == (expected is not None and expected <= world.now_us)
        if decision is None:
            return
        fired = set(before.timers) - set(world.run.timers)
        if world.run.is_open:
            assert all(before.timers[one].fires_at_us <= world.now_us for one in fired)
            after = next_due_us(world.run, world.liveness)
            assert after is None or after > world.now_us, "what was due is due still"
        self._judge_losses(decision)

    def _judge_losses(self, decision: Decision) -> None:
        """No timeout of a started attempt is judged in the grace."""
        if self.world.now_us < self.world.grace_until_us and decision.execution.is_open:
            assert decision.stopped == ()

    @rule(lag=st.sampled_from([0.0, 0.3, 2.0]))
    def a_new_owner_takes_over(self, lag: float) -> None:
        """Its estimate of the time may lag behind what the history holds."""
        world = self.world
        world.wait(-lag)
        world.take_over()
        if world.run.workflow_task.state == "scheduled":
            assert world.republish_task() is not None
        waiting = [one for one, a in world.run.activities.items() if a.state == "scheduled"]
        decision = world.republish_activities(*world.run.activities, 999)
        published = [] if decision is None else [task.entry.number for task in decision.tasks]
        assert published == sorted(waiting)

    @invariant()
    def whatever_is_pending_comes_back(self) -> None:
        run = self.world.run if self.world.latest else None
        if run is None or not run.is_open:
            return
        assert due_us(run) is not None or not (
            run.activities or run.timers or run.workflow_task.state != "none"
        )
        known = next_due_us(run, self.world.liveness)
        row = due_us(run)
        assert known is None or (row is not None and row <= max(known, self.world.grace_until_us))


Chain.TestCase.settings = settings(stateful_step_count=60)
TestChain = Chain.TestCase
