"""A handle on one workflow execution."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from odin.core.definition import SIGNAL_ATTRIBUTE
from odin.core.ids import check_id
from odin.core.payload import decode, encode_all
from odin.core.requests import Accepted, Outcome
from odin.errors import DeadlineExceededError, InternalError
from odin.proof import Certificate

from .failures import WorkflowContinuedAsNewError, failure_of_outcome
from .models import HistoryPage, WorkflowExecutionDescription, WorkflowHistory
from .transport import Reply, Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta

    from odin.core.events import HistoryEvent

    from .transport import Transport

R = TypeVar("R")

WAIT_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 60.0
"""How long a wait outlasts a cluster that does not answer."""
_PAGE: Final = 1_000
MSGPACK: Final = {"Accept": "application/msgpack"}

_outcomes: Final = msgspec.msgpack.Decoder(Outcome)
_pages: Final = msgspec.msgpack.Decoder(HistoryPage)


class Call(msgspec.Struct, frozen=True):
    """What every call of a client shares."""

    transport: Transport
    namespace: str
    identity: str
    timeout_seconds: float


class _Unset:
    """Stands for an argument that was not given: None is an argument."""


UNSET: Final = _Unset()


def arguments(arg: object, args: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the positional arguments that `arg` or `args` give.

    Raises:
        ValueError: Both are given.
    """
    if arg is not UNSET and args is not None:
        raise ValueError("give arg or args, not both")
    if args is not None:
        return tuple(args)
    return () if arg is UNSET else (arg,)


def raw_arguments(values: Sequence[Any]) -> list[msgspec.Raw]:
    """Return values as JSON, checked as the engine checks them."""
    return [msgspec.Raw(one.data) for one in encode_all(values)]


class WorkflowHandle(Generic[R]):
    """One workflow execution: wait for it, talk to it, look at it, end it.

    Made by `Client.start_workflow` and `Client.get_workflow_handle`.

    Attributes:
        id: The workflow id.
        run_id: The run that was started or named; None: whichever is the newest.
        first_run_id: The first run of its chain, when that is known.
    """

    def __init__(
        self,
        call: Call,
        id: str,  # noqa: A002 - the name that users know
        *,
        run_id: str | None = None,
        is_pinned: bool = False,
        first_run_id: str | None = None,
        result_type: Any = Any,  # noqa: ANN401 - any type that a payload can be decoded to
    ) -> None:
        """Take what the client knows.

        Args:
            call: What every call of the client shares.
            id: The workflow id.
            run_id: The run that `result` begins with.
            is_pinned: Whether all else is about this run too, and not about the newest of the id.
            first_run_id: The first run of the chain.
            result_type: What `result` decodes to.
        """
        self._call = call
        self.id = check_id(id, "workflow_id")
        self.run_id = run_id
        self._pinned = run_id if is_pinned else None
        self.first_run_id = first_run_id
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"WorkflowHandle(id={self.id!r}, run_id={self.run_id!r})"

    async def result(
        self,
        *,
        follow_runs: bool = True,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - of the wait, told to the engine
    ) -> R:
        """Return what the workflow returned, waiting for as long as it takes.

        Args:
            follow_runs: Whether a run that continued as new is followed to its successor.
            timeout: How long to wait; None: without end.

        Raises:
            WorkflowFailureError: It ended without a result; `cause` says why.
            WorkflowContinuedAsNewError: It continued as new and `follow_runs` is False.
            DeadlineExceededError: `timeout` passed; the workflow goes on.
            UnavailableError: No engine answered: for a minute, or with a `timeout` for that and the
                client's own.
            NotFoundError: There is no such execution.
        """
        outcome = await self.wait(follow_runs=follow_runs, timeout=timeout)
        if outcome.status == "completed":
            if outcome.result is None:
                raise InternalError(f"run {outcome.run_id} completed, and its result is missing")
            value: R = decode(outcome.result, self._result_type)
            return value
        if outcome.status == "continued_as_new":
            raise WorkflowContinuedAsNewError(outcome.new_run_id or "")
        raise failure_of_outcome(outcome, self.id)

    async def wait(
        self,
        *,
        follow_runs: bool = True,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as in result
    ) -> Outcome:
        """Return how the workflow ended, whichever way; arguments and errors as for `result`."""
        run_id = self.run_id
        ends_at = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            seconds = WAIT_SECONDS
            if ends_at is not None:
                seconds = min(seconds, ends_at - time.monotonic())
            if seconds < 0:
                raise DeadlineExceededError(f"{self.id} still runs", reason="STILL_RUNNING")
            patience = PATIENCE_SECONDS if ends_at is None else self._call.timeout_seconds
            outcome = await self._wait_once(run_id, seconds, patience)
            if outcome.status == "continued_as_new" and follow_runs and outcome.new_run_id:
                run_id = outcome.new_run_id
            elif outcome.status != "running":
                return outcome

    async def _wait_once(self, run_id: str | None, seconds: float, patience: float) -> Outcome:
        query = {"wait": f"{seconds:.3f}"}
        reply = await self._get("/wait", run_id, query, MSGPACK, seconds, patience)
        return _outcomes.decode(reply.body)

    async def signal(
        self,
        signal: str | Callable[..., Any],
        arg: object = UNSET,
        *,
        args: Sequence[Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        """Tell the open run something; returns once that is in its history.

        Args:
            signal: The signal's name, or the function that handles it.
            arg: The one argument, if it takes one.
            args: Its arguments, if it takes several.
            request_id: Repeat a call whose outcome is unknown with the same id.

        Raises:
            NotFoundError: There is no open run.
            OutcomeUnknownError: Whether the signal was taken is not known.
        """
        name = signal if isinstance(signal, str) else signal_name(signal)
        body = {"input": raw_arguments(arguments(arg, args))}
        await self._post(f"/signals/{quote(check_id(name, 'signal'))}", body, request_id)

    async def cancel(self, *, reason: str = "", request_id: str | None = None) -> None:
        """Ask the open run to stop; its code decides how. Errors as for `signal`."""
        await self._post("/cancel", {"reason": reason}, request_id)

    async def terminate(self, reason: str = "", *, request_id: str | None = None) -> None:
        """End the open run at once; none of its code runs. Errors as for `signal`."""
        await self._post("/terminate", {"reason": reason}, request_id)

    async def describe(self) -> WorkflowExecutionDescription:
        """Return how the run stands, and what is pending in it."""
        reply = await self._get("", self._pinned, {}, {})
        return msgspec.json.decode(reply.body, type=WorkflowExecutionDescription)

    async def proof(self) -> Certificate:
        """Return what the rows of the execution prove, judged by the engine that answers.

        That is about the run that the handle was made for by its run id, else about the whole chain
        of the newest run.

        Raises:
            NotFoundError: There is no such execution.
            FailedPreconditionError: There is more of it than one answer holds (PROOF_TOO_LARGE);
                ask for a chain's runs one by one.
        """
        reply = await self._get("/proof", self._pinned, {}, {})
        return msgspec.json.decode(reply.body, type=Certificate)

    async def fetch_history(self) -> WorkflowHistory:
        """Return the whole history of the run, exactly as it is stored."""
        run_id = self._pinned or (await self.describe()).run_id
        events = [event async for event in self.fetch_history_events(run_id=run_id)]
        return WorkflowHistory(self.id, run_id, tuple(events))

    async def fetch_history_events(
        self, *, run_id: str | None = None, after: int = 0
    ) -> AsyncIterator[HistoryEvent]:
        """Yield the events with an id above `after`, oldest first."""
        run_id = run_id or self._pinned
        while True:
            query = {"after": str(after), "limit": str(_PAGE)}
            page = _pages.decode((await self._get("/history", run_id, query, MSGPACK)).body)
            for event in page.events:
                yield event
            if page.next is None:
                return
            run_id, after = page.run_id, page.next

    async def _get(
        self,
        suffix: str,
        run_id: str | None,
        query: dict[str, str],
        headers: dict[str, str],
        wait_seconds: float = 0.0,
        patience: float | None = None,
    ) -> Reply:
        request = Request(
            method="GET",
            path=f"/v1/executions/{quote(self.id)}{suffix}",
            query={**self._query(run_id), **query},
            headers=headers,
        )
        patience = self._call.timeout_seconds if patience is None else patience
        return await self._call.transport.call(
            request, wait_seconds + patience, held_seconds=wait_seconds
        )

    async def _post(self, suffix: str, body: dict[str, Any], request_id: str | None) -> Accepted:
        request_id = request_id or secrets.token_hex(16)
        told = {**body, "request_id": request_id, "identity": self._call.identity}
        request = Request(
            method="POST",
            path=f"/v1/executions/{quote(self.id)}{suffix}",
            query=self._query(self._pinned),
            body=msgspec.json.encode(told),
            request_id=request_id,
        )
        reply = await self._call.transport.call(request, self._call.timeout_seconds)
        return msgspec.json.decode(reply.body, type=Accepted)

    def _query(self, run_id: str | None) -> dict[str, str]:
        query = {} if self._call.namespace == "default" else {"namespace": self._call.namespace}
        return query if run_id is None else {**query, "run_id": run_id}


def signal_name(fn: Callable[..., Any]) -> str:
    """Return the name of a signal's handler."""
    declared = getattr(fn, SIGNAL_ATTRIBUTE, None)
    return declared if isinstance(declared, str) else fn.__name__
