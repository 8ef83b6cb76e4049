"""Brings runs into memory: many at a time, each once.

While one query is on its way the next ones gather. What memory knows is always newer than what was
read: a run that came into memory meanwhile wins, and an answer for a term that is over is an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from odin.core.decide import Acknowledged
from odin.core.events import HistoryEvent
from odin.core.execution import Execution
from odin.core.requests import (
    RequestCancelWorkflow,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
    WaitWorkflow,
)
from odin.errors import NotOwnerError, OdinError, UnavailableError

from .run import Run
from .store.errors import DamagedRunError
from .store.values import Lookup, StoredRequest
from .term import Term

log = logging.getLogger(__name__)

BATCH_MAX = 500
DAMAGED_TOLD_MAX = 1_000
Loaded: TypeAlias = Callable[[Run | None, OdinError | None], None]
Request: TypeAlias = (
    StartWorkflow | SignalWorkflow | RequestCancelWorkflow | TerminateWorkflow | WaitWorkflow
)


class Reads(Protocol):
    """The store as the loader sees it."""

    async def lookup_many(
        self, lookups: Sequence[Lookup]
    ) -> list[tuple[Execution | DamagedRunError | None, StoredRequest | None]]:
        """Return the run (or why it cannot be read) and the request row of each, in order."""
        ...

    async def load_many(
        self, runs: Sequence[tuple[int, str]]
    ) -> dict[str, Execution | DamagedRunError]:
        """Return those of the runs (shard id, run id) that exist, by run id."""
        ...

    async def events(
        self, shard_id: int, run_id: str, *, after: int, upto: int, limit: int
    ) -> list[HistoryEvent]:
        """Return stored events in order."""
        ...


class _Asked(msgspec.Struct, frozen=True):
    term: Term
    lookup: Lookup
    answer: asyncio.Future[tuple[Execution | DamagedRunError | None, StoredRequest | None]]


class Loader:
    """Loads runs, requests and events for the terms of this node."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._lookups: list[_Asked] = []
        self._runs: dict[tuple[int, str], tuple[Term, list[Loaded]]] = {}
        self._wake = asyncio.Event()
        self._damaged: set[str] = set()

    @property
    def damaged_count(self) -> int:
        """Runs met so far whose rows cannot be read."""
        return len(self._damaged)

    async def lookup(
        self, term: Term, request: Request, *, run_id: str | None = None
    ) -> tuple[Run | None, Acknowledged | None]:
        """Return the run that a request is for, and what its request id was answered before.

        Args:
            term: The term to load under.
            request: The request; without a run id it is for the newest run of its workflow id.
            run_id: The run, where it is known better than the request says.

        Raises:
            NotOwnerError: The term is over.
            UnavailableError: The database did not answer.
            DamagedRunError: The run's row cannot be read.
        """
        wanted = run_id or request.run_id
        request_id = "" if isinstance(request, WaitWorkflow) else request.request_id
        known = _known(term, request, request_id)
        run = _in_memory(term, request, wanted)
        if known is not None or (run is not None and not request_id):
            return run, known
        answer: asyncio.Future[tuple[Execution | DamagedRunError | None, StoredRequest | None]] = (
            asyncio.get_running_loop().create_future()
        )
        lookup = Lookup(term.shard_id, request.namespace, request.workflow_id, wanted, request_id)
        self._lookups.append(_Asked(term, lookup, answer))
        self._wake.set()
        execution, stored = await answer
        if term.is_over:
            raise NotOwnerError(f"shard {term.shard_id} is moving; ask again")
        known = _known(term, request, request_id)
        if known is None and stored is not None:
            known = Acknowledged(
                request_id, stored.kind, stored.run_id, stored.event_id, stored.body_hash
            )
        run = _in_memory(term, request, wanted)
        if run is None and execution is not None:
            run = self._install(term, self._sound(execution), is_newest=wanted is None)
        return run, known

    def with_run(self, term: Term, run_id: str, loaded: Loaded) -> None:
        """Call `loaded` with the run, at once if it is in memory.

        With None if there is no such run.
        """
        run = term.runs.get(run_id)
        if run is not None:
            loaded(run, None)
            return
        key = (term.shard_id, run_id)
        asked = self._runs.get(key)
        if asked is None or asked[0] is not term:
            self._runs[key] = (term, [loaded])
        else:
            asked[1].append(loaded)
        self._wake.set()

    async def read_events(
        self, term: Term, run: Run, after: int, upto: int, limit: int = 2_000
    ) -> list[HistoryEvent]:
        """Return committed events after `after` up to `upto`, at most `limit`.

        Memory's where it has them.

        Raises:
            UnavailableError: The database did not answer.
        """
        events = run.events_after(after, upto)
        if events is not None:
            return events
        execution = run.execution
        read = await self._reads.events(
            execution.shard_id, execution.run_id, after=after, upto=upto, limit=limit
        )
        if not term.is_over:
            run.prepend([event for event in read if event.event_id <= run.tail_after])
        return read

    async def run(self, stop: asyncio.Event) -> None:
        """Answer what gathers, until told to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop), name="loader stop")
            while not stop.is_set():
                await self._wake.wait()
                self._wake.clear()
                while self._lookups or self._runs:
                    await self._answer()
        self._refuse()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _answer(self) -> None:
        """Answer what has gathered; look-ups and runs side by side if there are both."""
        if not self._runs:
            await self._answer_lookups()
        elif not self._lookups:
            await self._answer_runs()
        else:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._answer_lookups(), name="look up")
                both.create_task(self._answer_runs(), name="load runs")

    async def _answer_lookups(self) -> None:
        batch, self._lookups = self._lookups[:BATCH_MAX], self._lookups[BATCH_MAX:]
        if not batch:
            return
        try:
            found = await self._reads.lookup_many([asked.lookup for asked in batch])
        except OdinError as error:
            for asked in batch:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            return
        for asked, answer in zip(batch, found, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(answer)

    async def _answer_runs(self) -> None:
        keys = list(self._runs)[:BATCH_MAX]
        batch = [(key, *self._runs.pop(key)) for key in keys]
        if not batch:
            return
        error: OdinError | None = None
        found: dict[str, Execution | DamagedRunError] = {}
        try:
            found = await self._reads.load_many(keys)
        except OdinError as raised:
            error = raised
        for (_, run_id), term, waiting in batch:
            failed = error
            if failed is None and term.is_over:
                failed = NotOwnerError(f"shard {term.shard_id} is moving; ask again")
            run = term.runs.get(run_id)
            if failed is None and run is None and run_id in found:
                try:
                    run = self._install(term, self._sound(found[run_id]), is_newest=False)
                except DamagedRunError as damage:
                    failed = damage
            for loaded in waiting:
                _tell(loaded, run, failed)

    def _sound(self, execution: Execution | DamagedRunError) -> Execution:
        """Return the execution; say once of each damaged run that it is left alone.

        Raises:
            DamagedRunError: Its row cannot be read.
        """
        if not isinstance(execution, DamagedRunError):
            return execution
        run_id = str(execution.details["run_id"])
        if run_id not in self._damaged:
            if len(self._damaged) < DAMAGED_TOLD_MAX:
                self._damaged.add(run_id)
            log.error("run left alone", extra={"run_id": run_id, "detail": str(execution)[:500]})
        raise execution

    def _install(self, term: Term, execution: Execution, *, is_newest: bool) -> Run:
        """Keep a loaded run, with what inventories have said of it."""
        run = term.runs.get(execution.run_id)
        if run is not None:
            return run
        run = Run(execution, term.touched())
        term.add(run, is_newest=is_newest)
        term.adopt(run)
        return run

    def _refuse(self) -> None:
        """The engine stops: nobody waits for nothing."""
        error = UnavailableError("this engine is stopping; ask another")
        for asked in self._lookups:
            if not asked.answer.done():
                asked.answer.set_exception(error)
        for _, waiting in self._runs.values():
            for loaded in waiting:
                loaded(None, error)


def _tell(loaded: Loaded, run: Run | None, error: OdinError | None) -> None:
    try:
        loaded(run, error)
    except Exception:  # what one run's continuation trips over must not cost the others theirs
        log.exception("a loaded run could not be dealt with")


def _known(term: Term, request: Request, request_id: str) -> Acknowledged | None:
    kept = term.requests.get((request.namespace, request.workflow_id, request_id))
    return None if kept is None else kept[0]


def _in_memory(term: Term, request: Request, run_id: str | None) -> Run | None:
    if run_id is not None:
        run = term.runs.get(run_id)
        if run is not None and run.execution.workflow_id != request.workflow_id:
            return None
        return run
    return term.latest.get((request.namespace, request.workflow_id))
