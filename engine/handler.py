"""What an engine does with a client's request: load, decide, commit, answer.

This is the whole of it. What is loaded is the newest state of this term; what is decided is pure
(`odin.core.decide*`); what is committed is one group with its events, state and outbox; and the
answer leaves only after that group: a refusal and a repeat wait for the newest group too, since the
state they were taken from may stand in it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, assert_never

import msgspec

from odin.core.decide import Acknowledged, Decision, Moment
from odin.core.decide_client import (
    NewRun,
    decide_cancel,
    decide_signal,
    decide_start,
    decide_terminate,
)
from odin.core.execution import Execution
from odin.core.requests import (
    Accepted,
    Outcome,
    RequestCancelWorkflow,
    SignalWorkflow,
    Started,
    StartWorkflow,
    TerminateWorkflow,
    WaitWorkflow,
)
from odin.errors import InternalError, NotFoundError, OdinError, RequestMismatchError

from .closings import wait_for_closing
from .loader import Loader
from .run import HOLD_ROUNDS, Run
from .shards import Shards
from .store.condition import NOT_CONNECTED, unavailable
from .term import Term
from .ticket import GroupRaisedError

Change: TypeAlias = SignalWorkflow | RequestCancelWorkflow | TerminateWorkflow
_encode = msgspec.msgpack.Encoder().encode


class Loaded(msgspec.Struct, frozen=True):
    """What a decision is taken from.

    The run (None: there is none) and what the request id got before.
    """

    run: Run | None
    known: Acknowledged | None


class Verdict(msgspec.Struct, frozen=True):
    """What a decision leads to: the answer, and what is to be written for it (None: nothing)."""

    answer: Started | Accepted
    decision: Decision | None = None
    run: Run | None = None


class Handler:
    """Answers clients' requests for the shards that this node serves."""

    def __init__(self, shards: Shards, loader: Loader) -> None:
        self._shards = shards
        self._loader = loader

    async def ask(
        self, request: StartWorkflow | Change | WaitWorkflow, written: list[Decision] | None = None
    ) -> Started | Accepted | Outcome:
        """Answer a request for a shard that this node serves.

        Args:
            request: The request.
            written: Holds what may yet be written for it if nobody waits for the answer any more.

        Raises:
            NotOwnerError: It does not, or no longer.
            OdinError: The refusal, or why there can be no answer.
        """
        if isinstance(request, WaitWorkflow):
            try:
                return await wait_for_closing(self._shards, self._loader, request)
            except GroupRaisedError as error:
                raise error.for_caller(is_own=False) from error
        if isinstance(request, StartWorkflow):
            return await self._settle(request, self._decide_start, written)
        await self._while_held(request)
        return await self._settle(request, self._decide_change, written)

    async def _settle(
        self,
        request: StartWorkflow | Change,
        decide: Callable[[Term, Loaded, StartWorkflow | Change], Verdict],
        written: list[Decision] | None,
    ) -> Started | Accepted:
        """Load, decide, commit. A group that raises is decided anew, alone, once.

        Unless it is the server that takes nothing now: that is told at once.
        """
        shard_id = self._shards.shard_of(request.namespace, request.workflow_id)
        written = [] if written is None else written
        for alone in (False, True):
            written.clear()  # what raised is rolled back
            self._shards.check_writes(shard_id)
            term = self._shards.serving(shard_id)
            run, known = await self._look_up(term, request)
            term.check()
            try:
                deciding = partial(decide, term, Loaded(run, known), request)
                return await self._carry_out(term, deciding, written, alone=alone)
            except GroupRaisedError as error:
                if alone or error.is_of_server:
                    raise error.for_caller(is_own=bool(written)) from error
        raise InternalError("unreachable: the second round returns or raises")

    async def _look_up(
        self, term: Term, request: StartWorkflow | Change
    ) -> tuple[Run | None, Acknowledged | None]:
        """Look up, for a while: what waits for a database that is gone is not decided yet.

        Raises:
            StoreUnavailableError: It does not answer; nothing was changed.
        """
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._loader.lookup(term, request)
        except TimeoutError:
            what = f"no answer to a look-up in {LOOKUP_SECONDS:g} s"
            raise unavailable(NOT_CONNECTED, what) from None

    async def _carry_out(
        self,
        term: Term,
        decide: Callable[[], Verdict],
        written: list[Decision],
        *,
        alone: bool,
    ) -> Started | Accepted:
        """Decide, and answer once everything that the answer was taken from has committed.

        Args:
            term: The term that decides.
            decide: Takes the decision; raises the refusal.
            written: Gets the decision that was given to the lane.
            alone: Give it a group of its own.
        """
        try:
            verdict = decide()
        except OdinError:
            await term.settled()
            self._shards.check_lease()
            raise
        if verdict.decision is not None:
            written.append(verdict.decision)
            await term.write(verdict.run, verdict.decision, alone=alone).wait(term.shard_id)
        else:
            await term.settled()
            self._shards.check_lease()
        return verdict.answer

    def _decide_start(self, term: Term, loaded: Loaded, request: StartWorkflow | Change) -> Verdict:
        assert isinstance(request, StartWorkflow)  # noqa: S101 - for the type checker
        body_hash = hash_of(request)
        known = loaded.known
        if known is not None:
            _check_same(known, "start", body_hash)
            return Verdict(
                Started(run_id=known.run_id, first_run_id=known.run_id, started=True, replayed=True)
            )
        latest = None if loaded.run is None else loaded.run.execution
        new = NewRun(self._shards.ids.run_id(), term.shard_id, self._shards.ids.batch_random() >> 1)
        outcome = decide_start(latest, request, new, term.moment(loaded.run), body_hash)
        answer = Started(
            run_id=outcome.run_id, first_run_id=outcome.first_run_id, started=outcome.started
        )
        return Verdict(answer, outcome.decision, None if outcome.started else loaded.run)

    def _decide_change(
        self, term: Term, loaded: Loaded, request: StartWorkflow | Change
    ) -> Verdict:
        assert not isinstance(request, StartWorkflow)  # noqa: S101 - for the type checker
        body_hash = hash_of(request)
        known = loaded.known
        if known is not None:
            _check_same(known, KINDS[type(request)], body_hash)
            return Verdict(Accepted(run_id=known.run_id, event_id=known.event_id, replayed=True))
        run = loaded.run
        if run is None:
            which = (
                request.workflow_id
                if request.run_id is None
                else f"{request.workflow_id} run {request.run_id}"
            )
            raise NotFoundError(f"there is no workflow execution {which}")
        execution, moment = run.execution, term.moment(run)
        decision = _decide(execution, request, moment, body_hash)
        assert decision.acknowledged is not None  # noqa: S101 - each of the three acknowledges
        answer = Accepted(
            run_id=decision.acknowledged.run_id, event_id=decision.acknowledged.event_id
        )
        return Verdict(answer, decision, run)

    async def _while_held(self, request: Change) -> None:
        """Hold a message back while the run's closing report goes its third round or a later one.

        So that no stream of signals starves a run. A held message has been promised nothing.
        """
        if isinstance(request, TerminateWorkflow):
            return
        while True:
            term = self._shards.serving(
                self._shards.shard_of(request.namespace, request.workflow_id)
            )
            run = term.latest.get((request.namespace, request.workflow_id))
            if run is None or run.rounds < HOLD_ROUNDS or run.hold_until_us <= term.now_us():
                return
            await asyncio.sleep(HOLD_CHECK_SECONDS)


HOLD_CHECK_SECONDS = 0.05
LOOKUP_SECONDS = 3.0
KINDS = {SignalWorkflow: "signal", RequestCancelWorkflow: "cancel", TerminateWorkflow: "terminate"}


def _decide(execution: Execution, request: Change, moment: Moment, body_hash: bytes) -> Decision:
    match request:
        case SignalWorkflow():
            return decide_signal(execution, request, moment, body_hash)
        case RequestCancelWorkflow():
            return decide_cancel(execution, request, moment, body_hash)
        case TerminateWorkflow():
            return decide_terminate(execution, request, moment, body_hash)
        case _ as never:
            assert_never(never)


def hash_of(request: StartWorkflow | Change) -> bytes:
    """Return a hash of what the request asks for, its id and its sender left out."""
    bare = msgspec.structs.replace(request, request_id="", identity="")
    return hashlib.blake2b(_encode(bare), digest_size=16).digest()


def _check_same(known: Acknowledged, kind: str, body_hash: bytes) -> None:
    if known.kind != kind or known.body_hash != body_hash:
        raise RequestMismatchError(
            f"request id {known.request_id} was used for another {known.kind} before (run"
            f" {known.run_id});"
            " use a new id for a new request",
            details={"run_id": known.run_id},
        )
