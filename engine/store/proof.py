"""What the proof of a workflow execution is judged on: every row about it, in one snapshot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from odin.errors import FailedPreconditionError
from odin.proof.rows import Chain, EffectRow, EventRow, ExecutionRow, RunRows, TermRow

from .connections import READS, SQL, Connections
from .errors import CALL_ERRORS
from .proof_rows import effect_row, event_row, execution_row, outbox_row, request_row, term_row
from .rows import run_id_of

if TYPE_CHECKING:
    import asyncpg

    from odin.runtime.postgres import PooledConnection

RUNS_MAX: Final = 100
EVENTS_MAX: Final = 10_000
BYTES_MAX: Final = 16 * 1024 * 1024
ROWS_MAX: Final = 10_000
"""Terms, requests, waiting outbox rows and effects that are looked at, each; of more, none."""
AT_ONCE: Final = 2
"""Proofs read at once: the other connections are left to other reads."""
_NEIGHBOURS: Final = 3
T = TypeVar("T")

_NO_RUN: Final = "00000000-0000-0000-0000-000000000000"


class ProofTooLargeError(FailedPreconditionError):
    """There is more of it than one answer holds."""

    reason = "PROOF_TOO_LARGE"


class Proofs(Connections):
    """Reads the rows of a workflow execution; no term and no lease is needed."""

    _proving: asyncio.Semaphore | None = None

    async def proof_rows(
        self, shard_id: int, namespace: str, workflow_id: str, run_id: str | None
    ) -> Chain | None:
        """Return the rows of the chain of the newest run, or of one run and its neighbours' links.

        None if there is no such run.

        Raises:
            ProofTooLargeError: More than 100 runs, 10,000 events or 16 MiB of them.
            UnavailableError: The database did not answer.
        """
        wanted = None if run_id is None else run_id_of(run_id) or _NO_RUN
        if self._reads_pool is None:
            raise RuntimeError("the store is not open")
        if self._proving is None:
            self._proving = asyncio.Semaphore(AT_ONCE)
        try:
            async with (
                asyncio.timeout(READS.command_timeout),
                self._proving,
                self._reads_pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                reading = _Reading(connection, shard_id, namespace, workflow_id)
                return await reading.chain(wanted)
        except CALL_ERRORS as error:
            raise self._read_error(error) from error


class _Reading:
    """One snapshot."""

    def __init__(
        self, connection: PooledConnection, shard_id: int, namespace: str, workflow_id: str
    ) -> None:
        self._connection = connection
        self._shard_id = shard_id
        self._namespace = namespace
        self._workflow_id = workflow_id
        self._now_us = 0
        self._has_commit_times = False
        self._effects_since_us: int | None = None

    async def chain(self, run_id: str | None) -> Chain | None:
        """Return the chain; with a run id, that run whole and its neighbours in part."""
        place = (self._shard_id, self._namespace, self._workflow_id)
        found = await self._fetch("proof_target", *place, run_id)
        if not found:
            return None
        [server] = await self._fetch("proof_server")
        self._now_us, self._has_commit_times, self._effects_since_us = server
        target, first_run_id, started_us = found[0]
        if run_id is None:
            chain = (*place[1:], first_run_id, 0, _NO_RUN)
            found = await self._fetch("proof_runs", *chain, RUNS_MAX + 1)
            rows = [execution_row(row) for row in found]
            _check_size(rows)
            runs = [await self._whole(row) for row in rows]
        else:
            chain = (*place[1:], first_run_id, started_us, target)
            before = await self._fetch("proof_runs_before", *chain)
            later = await self._fetch("proof_runs", *chain, _NEIGHBOURS)
            rows = [execution_row(row) for row in (*before, *later)]
            _check_size([row for row in rows if row.run_id == target])
            runs = [
                await (self._whole(row) if row.run_id == target else self._part(row, target, rows))
                for row in rows
            ]
        return Chain(
            namespace=self._namespace,
            workflow_id=self._workflow_id,
            runs=tuple(runs),
            starts=tuple(rows),
        )

    async def _whole(self, row: ExecutionRow) -> RunRows:
        events = await self._events(row, 0, 2**31 - 1)
        if len(events) > EVENTS_MAX:  # more than its row says
            raise _too_large(f"run {row.run_id} has more than {EVENTS_MAX} events")
        requests = await self._fetch(
            "proof_requests",
            *(self._shard_id, self._namespace, self._workflow_id, row.run_id, ROWS_MAX + 1),
        )
        waiting = await self._fetch("proof_outbox", self._shard_id, row.run_id, ROWS_MAX)
        return RunRows(
            run_id=row.run_id,
            execution=row,
            events=events,
            terms=await self._terms(events),
            requests=_bounded(tuple(request_row(one) for one in requests)),
            outbox=tuple(outbox_row(one) for one in waiting),
            effects=await self._effects(row),
            effects_since_us=self._effects_since_us,
            has_commit_times=self._has_commit_times,
            read_at_us=self._now_us,
        )

    async def _part(self, row: ExecutionRow, target: str, rows: list[ExecutionRow]) -> RunRows:
        """Return the last event of a run before the target, the first one of a run after it."""
        is_before = row is rows[0] and row.run_id != target
        wanted = row.next_event_id - 1 if is_before else 1
        return RunRows(
            run_id=row.run_id,
            execution=row,
            events=await self._events(row, wanted, wanted),
            read_at_us=self._now_us,
            is_whole=False,
        )

    async def _events(self, row: ExecutionRow, first: int, last: int) -> tuple[EventRow, ...]:
        found = await self._fetch(
            "proof_events", self._shard_id, row.run_id, first, last, EVENTS_MAX + 1
        )
        return tuple(event_row(one) for one in found)

    async def _terms(self, events: tuple[EventRow, ...]) -> tuple[TermRow, ...] | None:
        ranges = [event.range_id for event in events]
        if not ranges:
            return ()
        found = await self._fetch(
            "proof_terms", self._shard_id, min(ranges), max(ranges), ROWS_MAX + 1
        )
        return _bounded(tuple(term_row(row) for row in found))

    async def _effects(self, row: ExecutionRow) -> tuple[EffectRow, ...] | None:
        key = f"{self._workflow_id}/{row.run_id}"
        # "0" is the character after "/".
        own = await self._fetch("proof_orders", f"{key}/", f"{key}0", ROWS_MAX + 1)
        if len(own) > ROWS_MAX:
            return None
        orders = sorted({one[0] for one in own})
        found = await self._fetch("proof_effects", orders, ROWS_MAX + 1) if orders else []
        return _bounded(tuple(effect_row(one) for one in found))

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._connection.fetch(SQL[name], *arguments)


def _check_size(rows: list[ExecutionRow]) -> None:
    if len(rows) > RUNS_MAX:
        raise _too_large(f"the chain has more than {RUNS_MAX} runs")
    events = sum(row.next_event_id - 1 for row in rows)
    if events > EVENTS_MAX:
        raise _too_large(f"there are {events} events, more than {EVENTS_MAX}")
    size = sum(row.history_bytes for row in rows)
    if size > BYTES_MAX:
        raise _too_large(f"the events hold {size} bytes, more than {BYTES_MAX}")


def _too_large(what: str) -> ProofTooLargeError:
    return ProofTooLargeError(
        f"{what}: too much for one answer. Ask for one run of the chain with run_id; the checker"
        " judges runs of any size"
    )


def _bounded(rows: tuple[T, ...]) -> tuple[T, ...] | None:
    """Return the rows, or None (not read) for more than are looked at."""
    return rows if len(rows) <= ROWS_MAX else None
