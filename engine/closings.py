"""Waiting for a run to close.

A subscription that the owner answers at once, or with the closing group.
"""

from __future__ import annotations

import asyncio

from odin.core import events as history
from odin.core.events import HistoryEvent
from odin.core.payload import Failure
from odin.core.requests import Outcome, WaitWorkflow
from odin.errors import NotFoundError, OdinError

from .loader import Loader
from .run import Run
from .shards import Shards
from .term import Term


async def wait_for_closing(shards: Shards, loader: Loader, request: WaitWorkflow) -> Outcome:
    """Return how the run ended, or after `wait_ms` that it still runs.

    Without a run id the chain is followed: a run that continued as new is not the end.

    Raises:
        NotFoundError: There is no such run.
        OdinError: The shard moved, or a group in between did not commit: ask again.
    """
    shard_id = shards.shard_of(request.namespace, request.workflow_id)
    term = shards.serving(shard_id)
    run_id = request.run_id
    try:
        async with asyncio.timeout(request.wait_ms / 1_000):
            while True:
                run, _ = await loader.lookup(term, request, run_id=run_id)
                if run is None:
                    await term.settled()
                    raise NotFoundError(f"there is no workflow execution {request.workflow_id}")
                run_id = run.execution.run_id
                if run.execution.is_open:
                    await _closed(term, run)
                outcome = await _outcome(term, loader, run)
                if request.run_id is not None or outcome.new_run_id is None:
                    return outcome
                run_id = outcome.new_run_id
    except TimeoutError:
        await term.settled()
        shards.check_lease()
        return Outcome(run_id=run_id or "", status="running")


async def _closed(term: Term, run: Run) -> None:
    """Return once the run's closing group has committed."""
    term.check()
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: OdinError | None) -> None:
        if closed.done():
            return
        if error is None:
            closed.set_result(None)
        else:
            closed.set_exception(error)

    waiting = term.closings.setdefault(run.execution.run_id, [])
    waiting.append(settle)
    try:
        await closed
    finally:
        if settle in waiting:
            waiting.remove(settle)
        if not waiting and term.closings.get(run.execution.run_id) is waiting:
            del term.closings[run.execution.run_id]


async def _outcome(term: Term, loader: Loader, run: Run) -> Outcome:
    """Return how a closed run ended, from its last event."""
    last_id = run.execution.next_event_id - 1
    events = run.events_after(last_id - 1, last_id)
    if events is None:
        events = await loader.read_events(term, run, last_id - 1, last_id)
    await term.settled()
    return outcome_of(run.execution.run_id, run.execution.status, events[-1])


def outcome_of(run_id: str, status: str, last: HistoryEvent) -> Outcome:
    """Return the outcome that a closing event states."""
    closing = history.from_history(last)
    if isinstance(closing, history.WorkflowExecutionCompleted):
        return Outcome(run_id=run_id, status=status, result=closing.result)
    if isinstance(closing, history.WorkflowExecutionContinuedAsNew):
        return Outcome(run_id=run_id, status=status, new_run_id=closing.new_run_id)
    return Outcome(run_id=run_id, status=status, failure=_failure_of(closing))


def _failure_of(closing: history.Event) -> Failure | None:
    """Return the failure that a run ended with, as its caller sees it."""
    match closing:
        case history.WorkflowExecutionFailed(failure=failure):
            return failure
        case history.WorkflowExecutionTerminated(reason=reason):
            return Failure(message=reason or "terminated", kind="terminated")
        case history.WorkflowExecutionTimedOut(timeout_type=timeout_type):
            text = f"the {timeout_type} timeout of the run has passed"
            return Failure(message=text, kind="timeout", timeout_type=timeout_type)
        case history.WorkflowExecutionCanceled():
            return Failure(message="the run was canceled", kind="canceled")
        case _:
            return None
