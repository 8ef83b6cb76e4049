"""Decisions on what clients ask: start, signal, cancel, terminate.

The owner has looked up the request row first: a request id that was accepted before never comes
here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from odin.core import requests
from odin.core.decide import Acknowledged, Change, Decision, Moment
from odin.core.events import (
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionTerminated,
)
from odin.core.execution import Execution, pack_values
from odin.errors import FailedPreconditionError, RunClosedError, WorkflowAlreadyStartedError

SIGNALS_MAX: Final = 10_000
_UNSUCCESSFUL: Final = frozenset({"failed", "canceled", "terminated", "timed_out"})


class NewRun(msgspec.Struct, frozen=True):
    """What a new run needs from outside: its id, its shard, and a seed for its random numbers."""

    run_id: str
    shard_id: int
    seed: int


class StartOutcome(msgspec.Struct, frozen=True):
    """What a start leads to.

    The run, whether this request began it, and what is to be written (None: nothing new).
    """

    run_id: str
    first_run_id: str
    started: bool
    decision: Decision


def decide_start(
    latest: Execution | None,
    request: requests.StartWorkflow,
    new: NewRun,
    moment: Moment,
    body_hash: bytes,
) -> StartOutcome:
    """Decide a start, given the newest run of its workflow id.

    Raises:
        WorkflowAlreadyStartedError: The conflict or the reuse policy forbids the start; details
            name the run.
    """
    terminated: Decision | None = None
    if latest is not None and latest.is_open:
        if request.signal_name is not None:
            return _signal_existing(latest, request, moment, body_hash)
        if request.id_conflict_policy == requests.USE_EXISTING:
            return _use_existing(latest, request, moment, body_hash)
        if request.id_conflict_policy == requests.FAIL:
            raise _in_the_way(latest, "has an open run", "ALREADY_STARTED")
        terminated = _terminate(
            latest,
            f"terminated by a new start ({request.request_id})",
            request.identity,
            "",
            moment,
        )
    elif latest is not None:
        _check_reuse(latest, request)
    decision = begin(request, new, moment, first_run_id=new.run_id)
    decision.acknowledged = Acknowledged(request.request_id, "start", new.run_id, 1, body_hash)
    if terminated is not None:
        decision.also = (terminated,)
    return StartOutcome(new.run_id, new.run_id, started=True, decision=decision)


def _check_reuse(latest: Execution, request: requests.StartWorkflow) -> None:
    if request.id_reuse_policy == requests.REJECT_DUPLICATE:
        raise _in_the_way(latest, f"was used by a run that {latest.status}", "REUSE_REJECTED")
    if (
        request.id_reuse_policy == requests.ALLOW_DUPLICATE_FAILED_ONLY
        and latest.status not in _UNSUCCESSFUL
    ):
        raise _in_the_way(latest, f"was used by a run that {latest.status}", "REUSE_REJECTED")


def begin(
    request: requests.StartWorkflow,
    new: NewRun,
    moment: Moment,
    *,
    first_run_id: str,
    continued_from: Execution | None = None,
) -> Decision:
    """Return the decision that begins a run: its first event, its first task, its deadlines.

    Args:
        request: What was asked for.
        new: The run's id, shard and seed.
        moment: When.
        first_run_id: The first run of its chain.
        continued_from: The run before it in the chain: the successor keeps what bounds the whole
            chain, and its parent.
    """
    started_us = moment.now_us
    execution_deadline_us = _deadline(started_us, request.execution_timeout_ms)
    if continued_from is not None:
        started_us = max(started_us, continued_from.last_event_us)
        execution_deadline_us = continued_from.execution_deadline_us
    execution = Execution(
        shard_id=new.shard_id,
        namespace=request.namespace,
        workflow_id=request.workflow_id,
        run_id=new.run_id,
        first_run_id=first_run_id,
        workflow_type=request.workflow_type,
        task_queue=request.task_queue,
        origin=request.origin,
        started_us=started_us,
        run_deadline_us=_deadline(started_us, request.run_timeout_ms),
        execution_deadline_us=execution_deadline_us,
        task_timeout_ms=request.task_timeout_ms,
        parent=None if continued_from is None else continued_from.parent,
        memo=pack_values(request.memo),
        search_attributes=pack_values(request.search_attributes),
    )
    change = Change(execution, moment)
    change.append(
        WorkflowExecutionStarted(
            workflow_type=request.workflow_type,
            task_queue=request.task_queue,
            input=request.input,
            execution_timeout_ms=request.execution_timeout_ms,
            run_timeout_ms=request.run_timeout_ms,
            task_timeout_ms=request.task_timeout_ms,
            first_run_id=first_run_id,
            continued_from_run_id=None if continued_from is None else continued_from.run_id,
            origin=request.origin,
            identity=request.identity,
            memo=request.memo,
            search_attributes=request.search_attributes,
            seed=new.seed,
        )
    )
    if request.signal_name is not None:
        _append_signal(change, request.signal_name, request)
    if request.start_delay_ms > 0:
        task = change.after.workflow_task
        task.number, task.attempt, task.state = 1, 0, "backoff"
        task.interval_ms = request.task_timeout_ms
        task.due_us = change.at_us + request.start_delay_ms * 1_000
    else:
        change.wake()
    decision = change.decision()
    decision.is_new = True
    return decision


def decide_signal(
    execution: Execution, request: requests.SignalWorkflow, moment: Moment, body_hash: bytes
) -> Decision:
    """Decide a signal: accepted whenever the run is open.

    Raises:
        RunClosedError: The run is closed.
        FailedPreconditionError: The run has had 10,000 signals, or its history is full.
    """
    _check_open(execution)
    _check_signals(execution)
    moment.limits.check(execution)
    change = Change(execution, moment)
    change.after.signal_count += 1
    event_id = change.append(
        WorkflowExecutionSignaled(
            name=request.name,
            input=request.input,
            request_id=request.request_id,
            identity=request.identity,
        )
    )
    change.wake()
    change.acknowledged = Acknowledged(
        request.request_id, "signal", execution.run_id, event_id, body_hash
    )
    return change.decision()


def decide_cancel(
    execution: Execution, request: requests.RequestCancelWorkflow, moment: Moment, body_hash: bytes
) -> Decision:
    """Decide a cancel request: it is recorded once, later ones are acknowledged and change nothing.

    Raises:
        RunClosedError: The run is closed.
    """
    _check_open(execution)
    change = Change(execution, moment)
    event_id = execution.next_event_id - 1
    if not execution.cancel_requested:
        change.after.cancel_requested = True
        event_id = change.append(
            WorkflowExecutionCancelRequested(
                reason=request.reason, request_id=request.request_id, identity=request.identity
            )
        )
        change.wake()
    change.acknowledged = Acknowledged(
        request.request_id, "cancel", execution.run_id, event_id, body_hash
    )
    return change.decision()


def decide_terminate(
    execution: Execution, request: requests.TerminateWorkflow, moment: Moment, body_hash: bytes
) -> Decision:
    """Decide a termination: the run is closed at once, whatever it is doing.

    Raises:
        RunClosedError: The run is closed already.
    """
    _check_open(execution)
    decision = _terminate(execution, request.reason, request.identity, request.request_id, moment)
    decision.acknowledged = Acknowledged(
        request.request_id, "terminate", execution.run_id, decision.events[-1].event_id, body_hash
    )
    return decision


def _terminate(
    execution: Execution, reason: str, identity: str, request_id: str, moment: Moment
) -> Decision:
    change = Change(execution, moment)
    change.close(
        WorkflowExecutionTerminated(reason=reason, request_id=request_id, identity=identity),
        "terminated",
    )
    return change.decision()


def _use_existing(
    latest: Execution, request: requests.StartWorkflow, moment: Moment, body_hash: bytes
) -> StartOutcome:
    change = Change(latest, moment)
    change.acknowledged = Acknowledged(request.request_id, "start", latest.run_id, 1, body_hash)
    return StartOutcome(
        latest.run_id, latest.first_run_id, started=False, decision=change.decision()
    )


def _signal_existing(
    latest: Execution, request: requests.StartWorkflow, moment: Moment, body_hash: bytes
) -> StartOutcome:
    _check_signals(latest)
    moment.limits.check(latest)
    change = Change(latest, moment)
    event_id = _append_signal(change, request.signal_name or "", request)
    change.wake()
    change.acknowledged = Acknowledged(
        request.request_id, "start", latest.run_id, event_id, body_hash
    )
    return StartOutcome(
        latest.run_id, latest.first_run_id, started=False, decision=change.decision()
    )


def _append_signal(change: Change, name: str, request: requests.StartWorkflow) -> int:
    change.after.signal_count += 1
    return change.append(
        WorkflowExecutionSignaled(
            name=name,
            input=request.signal_input,
            request_id=request.request_id,
            identity=request.identity,
        )
    )


def _deadline(now_us: int, timeout_ms: int | None) -> int | None:
    return None if timeout_ms is None else now_us + timeout_ms * 1_000


def _check_open(execution: Execution) -> None:
    if not execution.is_open:
        raise RunClosedError(
            f"run {execution.run_id} of {execution.workflow_id} is {execution.status}",
            details={"run_id": execution.run_id, "status": execution.status},
        )


def _check_signals(execution: Execution) -> None:
    if execution.signal_count >= SIGNALS_MAX:
        raise FailedPreconditionError(
            f"run {execution.run_id} has had {SIGNALS_MAX} signals; let it continue as new",
            reason="TOO_MANY_SIGNALS",
        )


def _in_the_way(latest: Execution, why: str, reason: str) -> WorkflowAlreadyStartedError:
    return WorkflowAlreadyStartedError(
        f"workflow id {latest.workflow_id} {why} (run {latest.run_id}); use another id or"
        " another id policy",
        reason=reason,
        details={"run_id": latest.run_id, "status": latest.status},
    )
