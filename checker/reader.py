"""Reads runs with everything that belongs to them, in batches that fit into memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odin.proof.rows import (
    EffectRow,
    EventRow,
    ExecutionRow,
    OutboxRow,
    RequestRow,
    RunRows,
    unpacked_attributes,
    unpacked_list,
)

from .invariants.rows import OutboxState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    import asyncpg

    from odin.proof.rows import TermRow

    from .snapshot import Snapshot

RUNS_MAX: Final = 200
EVENTS_MAX: Final = 4_000
OUTBOX_PAGE: Final = 1_000
OUTBOX_KEPT_MAX: Final = 50_000
TASK_KINDS: Final = frozenset({"w", "a"})


@dataclass(slots=True)
class RunReader:
    """Yields runs, chain by chain; one instance per snapshot.

    Attributes:
        snapshot: What is read.
        terms: Every term, by shard.
        outbox: The tasks on their way, by run; None if there are too many to hold.
    """

    snapshot: Snapshot
    terms: Mapping[int, Sequence[TermRow]]
    outbox: Mapping[str, Sequence[OutboxRow]] | None
    _ranges: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Make the terms findable by range."""
        self._ranges = {shard: [one.range_id for one in rows] for shard, rows in self.terms.items()}

    async def runs(self) -> AsyncIterator[list[RunRows]]:
        """Yield every run that the window touches, and its chain; a chain's runs follow in order.

        A batch holds at most 200 runs, and 4,000 events unless one run alone has more.
        """
        window = self.snapshot.window
        pages = self.snapshot.batches("read_runs", RUNS_MAX, window.since_us, window.until_us)
        async for page in pages:
            for executions in portions([execution_of(row) for row in page]):
                yield await self._whole(executions)

    async def _whole(self, executions: Sequence[ExecutionRow]) -> list[RunRows]:
        events = await self._events(executions)
        requests = await self._requests(executions)
        effects = await self._effects(executions)
        return [
            RunRows(
                run_id=run.run_id,
                execution=run,
                events=(own := tuple(events[run.run_id])),
                terms=self._terms_of(run.shard_id, own),
                requests=tuple(requests[run.run_id]),
                outbox=None if self.outbox is None else tuple(self.outbox.get(run.run_id, ())),
                effects=tuple(effects[run.run_id]),
                effects_since_us=self.snapshot.effects_since_us,
                has_commit_times=self.snapshot.has_commit_times,
                read_at_us=self.snapshot.now_us,
            )
            for run in executions
        ]

    async def _events(self, executions: Sequence[ExecutionRow]) -> dict[str, list[EventRow]]:
        found: dict[str, list[EventRow]] = defaultdict(list)
        rows = await self.snapshot.fetch(
            "read_events",
            [one.shard_id for one in executions],
            [one.run_id for one in executions],
            self.snapshot.has_commit_times,
        )
        for row in rows:
            values: dict[str, Any] = dict(row)
            attributes, damage = unpacked_attributes(values.pop("attributes"))
            found[row["run_id"]].append(EventRow(attributes=attributes, damage=damage, **values))
        return found

    async def _requests(self, executions: Sequence[ExecutionRow]) -> dict[str, list[RequestRow]]:
        found: dict[str, list[RequestRow]] = defaultdict(list)
        wanted = {(one.shard_id, one.namespace, one.workflow_id) for one in executions}
        for row in await self.snapshot.fetch("read_requests", *columns(wanted, 3)):
            found[row["run_id"]].append(RequestRow(**dict(row)))
        return found

    async def _effects(self, executions: Sequence[ExecutionRow]) -> dict[str, list[EffectRow]]:
        found: dict[str, list[EffectRow]] = defaultdict(list)
        wanted = [
            (one.run_id, one.workflow_id, f"{one.workflow_id}/{one.run_id}") for one in executions
        ]
        for row in await self.snapshot.fetch("read_effects", *columns(wanted, 3)):
            values: dict[str, Any] = dict(row)
            found[values.pop("run_id")].append(EffectRow(**values))
        return found

    def _terms_of(self, shard_id: int, events: Sequence[EventRow]) -> tuple[TermRow, ...]:
        """Return the terms from the oldest range of an event to the one after the newest."""
        terms, ranges = self.terms.get(shard_id, ()), self._ranges.get(shard_id, [])
        if not events:
            return tuple(terms)
        used = [one.range_id for one in events]
        last = bisect_right(ranges, max(used))
        if last < len(ranges):
            last = bisect_right(ranges, ranges[last])
        return tuple(terms[bisect_left(ranges, min(used)) : last])


def execution_of(row: asyncpg.Record) -> ExecutionRow:
    """Return a row of `execution`, what is pending unpacked."""
    values: dict[str, Any] = dict(row)
    return ExecutionRow(pending=unpacked_list(values.pop("pending")), **values)


def columns(rows: Iterable[Sequence[object]], width: int) -> list[list[Any]]:
    """Return rows of `width` values as the columns that `unnest` takes."""
    return [list(one) for one in zip(*rows, strict=True)] or [[] for _ in range(width)]


def portions(executions: Sequence[ExecutionRow]) -> Iterator[list[ExecutionRow]]:
    """Cut a page so that each piece has few events, or is one run."""
    portion: list[ExecutionRow] = []
    count = 0
    for one in executions:
        if portion and count + one.next_event_id > EVENTS_MAX:
            yield portion
            portion, count = [], 0
        portion.append(one)
        count += one.next_event_id
    if portion:
        yield portion


async def outbox_pages(snapshot: Snapshot) -> AsyncIterator[list[OutboxRow]]:
    """Yield the outbox in pages; an entry that cannot be read is None."""
    async for page in snapshot.batches("read_outbox", OUTBOX_PAGE):
        rows = []
        for row in page:
            values: dict[str, Any] = dict(row)
            rows.append(OutboxRow(entry=unpacked_list(values.pop("body")), **values))
        yield rows


async def outbox_by_run(snapshot: Snapshot) -> dict[str, list[OutboxRow]] | None:
    """Return the tasks on their way by the run that they name; None if there are too many."""
    found: dict[str, list[OutboxRow]] = defaultdict(list)
    count = 0
    async for rows in outbox_pages(snapshot):
        count += len(rows)
        if count > OUTBOX_KEPT_MAX:
            return None
        for row in rows:
            found[run_of(row)].append(row)
    return found


async def outbox_states(snapshot: Snapshot, rows: Sequence[OutboxRow]) -> list[OutboxState]:
    """Return rows of the outbox with how the runs stand that they name."""
    wanted = {(row.shard_id, run_id) for row in rows if (run_id := run_of(row))}
    found = {
        row["run_id"]: row for row in await snapshot.fetch("read_standing", *columns(wanted, 2))
    }
    states = []
    for row in rows:
        run_id = run_of(row)
        run = found.get(run_id)
        states.append(
            OutboxState(
                shard_id=row.shard_id,
                id=row.id,
                run_id=run_id,
                created_at_us=row.created_at_us,
                publish_count=row.publish_count,
                status=run["status"] if run else "",
                closed_at_us=run["closed_at_us"] if run else None,
            )
        )
    return states


def run_of(row: OutboxRow) -> str:
    """Return the run that a row names, [kind, shard, range, run, ...]; empty if it names none."""
    match row.entry:
        case [str() as kind, _, _, str() as run_id, *_] if kind in TASK_KINDS:
            return run_id
        case _:
            return ""
