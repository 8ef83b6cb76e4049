"""Handlers that ask something of a run's owner: start, signal, cancel, terminate, wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.core.requests import Accepted, Outcome, Started, WaitWorkflow
from odin.errors import InternalError

from .bodies import (
    ReasonBody,
    SignalBody,
    StartBody,
    cancel_request,
    signal_request,
    start_request,
    terminate_request,
)
from .call import Answer, Call, json_answer, msgpack_answer, number
from .views import OutcomeView, failure_view, value_of

if TYPE_CHECKING:
    from odin.core.requests import ClientRequest

    from .backend import Backend

WAIT_SECONDS_MAX: Final = 30.0
_WAIT_MARGIN_MS: Final = 5_000
_REPLAYED: Final = ((b"idempotency-replayed", b"true"),)


class Writing:
    """The handlers, over one backend."""

    def __init__(self, backend: Backend) -> None:
        """Take the engine."""
        self._backend = backend

    async def start(self, call: Call) -> Answer:
        """Start a run; 201 if it is new, 200 if it was there."""
        body = call.decode(StartBody)
        origin = call.header(b"x-odin-origin") or ""
        request = start_request(body, call.namespace, call.request_id(body), origin)
        answer = await self._backend.ask(request, call.timeout_ms)
        if not isinstance(answer, Started):
            raise _wrong(answer)
        fresh = answer.started and not answer.replayed
        return json_answer(answer, 201 if fresh else 200, _REPLAYED if answer.replayed else ())

    async def signal(self, call: Call) -> Answer:
        """Signal the open run."""
        body = call.decode(SignalBody)
        request = signal_request(body, call.target, call.path["name"], call.request_id(body))
        return await self._accepted(request, call)

    async def cancel(self, call: Call) -> Answer:
        """Ask the open run to stop."""
        body = call.decode(ReasonBody)
        return await self._accepted(cancel_request(body, call.target, call.request_id(body)), call)

    async def terminate(self, call: Call) -> Answer:
        """End the open run at once."""
        body = call.decode(ReasonBody)
        return await self._accepted(
            terminate_request(body, call.target, call.request_id(body)), call
        )

    async def wait(self, call: Call) -> Answer:
        """Return the outcome once there is one, or that the run still runs after `wait` seconds."""
        target = call.target
        given = call.query.get("wait")
        seconds = WAIT_SECONDS_MAX if given is None else number(given, "wait", 0, WAIT_SECONDS_MAX)
        wait_ms = round(seconds * 1_000)
        request = WaitWorkflow(
            namespace=target.namespace,
            workflow_id=target.workflow_id,
            run_id=target.run_id,
            wait_ms=wait_ms,
        )
        answer = await self._backend.ask(request, wait_ms + _WAIT_MARGIN_MS)
        if not isinstance(answer, Outcome):
            raise _wrong(answer)
        if call.takes_msgpack:
            return msgpack_answer(answer)
        return json_answer(outcome_view(answer))

    async def _accepted(self, request: ClientRequest, call: Call) -> Answer:
        answer = await self._backend.ask(request, call.timeout_ms)
        if not isinstance(answer, Accepted):
            raise _wrong(answer)
        return json_answer(answer, 200, _REPLAYED if answer.replayed else ())


def outcome_view(outcome: Outcome) -> OutcomeView:
    """Return how a run stands, as HTTP shows it."""
    if outcome.result is None:
        return OutcomeView(
            run_id=outcome.run_id,
            status=outcome.status,
            failure=failure_view(outcome.failure),
            new_run_id=outcome.new_run_id,
        )
    return OutcomeView(
        run_id=outcome.run_id, status=outcome.status, result=value_of(outcome.result)
    )


def _wrong(answer: object) -> InternalError:
    return InternalError(f"the engine answered with {type(answer).__name__}")
