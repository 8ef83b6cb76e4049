"""The due loop: whatever a run waits for in time, its owner acts on, and nothing is early.

Every run in memory has at most one entry in the queue that counts, at the earliest instant it may
be due; an entry is only a reason to look. Runs that are not in memory are found by a scan of the
rows, once when a term begins and then every half a minute: a level, not an edge, so that nothing is
forgotten because it was once seen.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from odin.core.decide import Change, Decision
from odin.core.decide_due import decide_due
from odin.errors import OdinError
from odin.runtime.clock import pause

from .loader import Loader
from .run import Run
from .shards import Shards
from .store.reads import FIRST_RUN_ID
from .term import Term
from .ticket import GroupRaisedError

log = logging.getLogger(__name__)

WINDOW_US: Final = 60_000_000
SCAN_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.2
PAGE: Final = 1_000
_NEVER: Final = 2**62


class DueReads(Protocol):
    """The store as the due loop sees it."""

    async def due_before(
        self, shard_ids: Sequence[int], us: int, limit: int, *, after: tuple[int, str] = ...
    ) -> list[tuple[int, str, int]]:
        """Return (shard id, run id, due_us) of runs that may be due by `us`."""
        ...


class DueLoop:
    """Acts on what is due in the shards of this node."""

    def __init__(self, shards: Shards, loader: Loader, reads: DueReads) -> None:
        self._shards = shards
        self._loader = loader
        self._reads = reads
        self._heap: list[tuple[int, int, int, str]] = []
        self._new_shards: set[int] = set()
        self._wake = asyncio.Event()
        self._wake_scan = asyncio.Event()
        self.fired_count = 0

    def queue(self, term: Term, run: Run) -> None:
        """The run has moved on.

        Look at it when it is due, if that is earlier than the next look.
        """
        due_us = run.due_us(run.liveness or term.liveness(run))
        if due_us >= run.queued_due_us or due_us > self._shards.now_us() + WINDOW_US:
            return
        run.queued_due_us = due_us
        self._push(due_us, term, run.execution.run_id)

    def term_began(self, term: Term) -> None:
        """Look for what is due in a shard that has just become ours."""
        self._new_shards.add(term.shard_id)
        self._wake_scan.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Act until told to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._scan(stop), name="due scan")
            group.create_task(self._wake_at(stop), name="due stop")
            while not stop.is_set():
                await self._act()
                await self._until_next()

    async def _act(self) -> None:
        """Look at every run whose time has come; make way for others now and then."""
        looked = 0
        while self._heap and self._heap[0][0] <= self._shards.now_us():
            _, shard_id, range_id, run_id = heapq.heappop(self._heap)
            term = self._shards.terms.get(shard_id)
            if term is None or term.range_id != range_id or not term.is_serving:
                continue
            run = term.runs.get(run_id)
            if run is not None:
                self._look(term, run)
            else:
                self._loader.with_run(term, run_id, partial(self._look_loaded, term))
            looked += 1
            if looked % 200 == 0:
                await asyncio.sleep(0)

    def _look_loaded(self, term: Term, run: Run | None, error: OdinError | None) -> None:
        """Look at a run that a scan has found; move its row's bound on if nothing is due."""
        if run is None or error is not None or not term.is_serving:
            return
        if not self._look(term, run) and run.execution.is_open and term.is_settled:
            image = Change(run.execution, term.moment(run)).decision()
            self._write(term, run, image, alone=False)

    def _look(self, term: Term, run: Run, *, alone: bool = False) -> bool:
        """Decide what is due of the run; return whether anything was."""
        run.queued_due_us = _NEVER
        if not term.is_serving or not run.execution.is_open:
            return False
        try:
            decision = decide_due(run.execution, term.moment(run), term.liveness(run))
        except Exception:  # one run that cannot be judged must not stop the clock of all others
            log.exception("run left alone", extra={"run_id": run.execution.run_id})
            return True
        if decision is None:
            self.queue(term, run)
            return False
        self.fired_count += 1
        if any(task.entry.kind == "w" for task in decision.tasks):
            run.claimant = ""  # a workflow task that is due is anybody's again
        self._write(term, run, decision, alone=alone)
        return True

    def _write(self, term: Term, run: Run, decision: Decision, *, alone: bool) -> None:
        ticket = term.write(run, decision, alone=alone)

        def settled(error: OdinError | None) -> None:
            if isinstance(error, GroupRaisedError) and not alone:
                fresh = self._shards.terms.get(term.shard_id)
                if fresh is not None:
                    self._retry_alone(fresh, decision.execution.run_id)

        ticket.then(term.shard_id, settled)

    def _retry_alone(self, term: Term, run_id: str) -> None:
        def loaded(run: Run | None, error: OdinError | None) -> None:
            if run is not None and error is None:
                self._look(term, run, alone=True)

        self._loader.with_run(term, run_id, loaded)

    async def _until_next(self) -> None:
        """Wait until the next entry is due, or a nearer one comes."""
        self._wake.clear()
        wait = SCAN_SECONDS
        if self._heap:
            wait = max(0.0, (self._heap[0][0] - self._shards.now_us()) / 1_000_000)
        if wait == 0.0:
            await asyncio.sleep(0)
            return
        # A handle instead of a timeout: this wait ends by time for nearly every run.
        due = asyncio.get_running_loop().call_later(min(wait, SCAN_SECONDS), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            due.cancel()

    async def _scan(self, stop: asyncio.Event) -> None:
        """Find runs that are not in memory and will be due soon.

        Of new shards at once, of all every 30 s.
        """
        clock = self._shards.clock
        last_all = clock.boottime()
        while not stop.is_set():
            self._wake_scan.clear()
            new, self._new_shards = self._new_shards, set()
            now = clock.boottime()
            if now - last_all >= SCAN_SECONDS:
                last_all = now
                new = set(self._shards.terms)
            if new:
                await self._scan_shards(sorted(new))
            wait = RETRY_SECONDS if self._new_shards else last_all + SCAN_SECONDS - now
            await pause(clock, self._wake_scan, max(wait, RETRY_SECONDS))

    async def _scan_shards(self, shard_ids: Sequence[int]) -> None:
        horizon_us = self._shards.now_us() + WINDOW_US
        after = (-1, FIRST_RUN_ID)
        while True:
            try:
                page = await self._reads.due_before(shard_ids, horizon_us, PAGE, after=after)
            except OdinError as error:
                log.warning("due scan failed, trying again", extra={"detail": str(error)})
                self._new_shards.update(shard_ids)
                return
            for shard_id, run_id, due_us in page:
                term = self._shards.terms.get(shard_id)
                if term is None:
                    continue
                run = term.runs.get(run_id)
                if run is None:
                    self._push(due_us, term, run_id)
                else:
                    self.queue(term, run)
            if len(page) < PAGE:
                return
            after = (page[-1][2], page[-1][1])

    def _push(self, due_us: int, term: Term, run_id: str) -> None:
        first = self._heap[0][0] if self._heap else _NEVER
        heapq.heappush(self._heap, (due_us, term.shard_id, term.range_id, run_id))
        if due_us < first:
            self._wake.set()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()
        self._wake_scan.set()
