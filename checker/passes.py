"""One pass: take a snapshot, feed the judges from it, replay some histories, write the result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from odin.errors import OdinError
from odin.proof.findings import Finding
from odin.runtime.postgres import Session, connect

from . import reader, telling
from .invariants.circumstances import hygiene, power, schedules
from .invariants.conservation import blame_orphans
from .invariants.rows import (
    Experiment,
    Moment,
    OrphanRow,
    SessionRow,
    StockRow,
    TableRow,
)
from .invariants.tally import unjudged
from .judging import OF_RUNS, Judges
from .replaying import Replay, replayed
from .snapshot import APPLICATION_NAME, SESSION, SQL, Snapshot, snapshot
from .verdicts import Report, complete, overall, required

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.runtime.clock import Clock

OUTCOMES_MAX: Final = 500
ORPHANS_MAX: Final = 1_000
SECOND_US: Final = 1_000_000
# Everything that can go wrong with a look at a database. Of a check that failed nothing is known.
_FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, OdinError)
_WRITER: Final = Session(lock_timeout=2.0, statement_timeout=5.0, command_timeout=8.0)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pass is to judge.

    Attributes:
        since_us: Where the window begins, microseconds since 1970.
        until_us: Where it ends; None: now.
        experiment: The experiment whose evidence is judged; None: none.
        settle_seconds: How long after a fault, or after it was due, anything may take.
        retention_seconds: Runs that closed longer ago than this may be gone.
        replay: Which histories to replay; None: none.
    """

    since_us: int
    until_us: int | None = None
    experiment: str | None = None
    settle_seconds: float = 60.0
    retention_seconds: float = 6 * 3_600.0
    replay: Replay | None = None


@dataclass(slots=True)
class Pass:
    """One pass that is under way.

    Attributes:
        asked: What it is to judge.
        taken: The snapshot.
        judges: Judge the rows.
        kept_us: What ended before this may be gone by retention.
        others: Findings that need no accumulator.
        tell: Told of progress, a line at a time.
    """

    asked: Asked
    taken: Snapshot
    judges: Judges
    kept_us: int
    others: list[Finding]
    tell: Callable[[str], None]

    async def read(self) -> None:
        """Feed everything in the snapshot to the judges; a part that fails leaves doubts."""
        await self._part(self._runs, (*OF_RUNS, "I9", "I13", "I14"))
        await self._part(self._terms, ("I4",))
        await self._part(self._told, ("I7", "I8", "I21", "I22"))
        await self._part(self._books, ("I11", "I13"))
        await self._part(self._outbox, ("I14",))
        await self._part(self._health, ("I23",))
        await self._part(self._power, ("I24",))
        self.others.append(schedules(self.taken.schedule_count))

    async def _part(self, work: Callable[[], Awaitable[None]], invariants: Iterable[str]) -> None:
        try:
            async with self.taken.section():
                await work()
        except Exception as error:  # noqa: BLE001 - a check that crashed proves nothing, in words
            log.warning("a check failed", extra={"detail": repr(error)})
            tallies = self.judges.tallies()
            words = f"the check itself failed: {type(error).__name__}"
            for name in invariants:
                if name in tallies:
                    tallies[name].doubt(name, words)
                else:
                    self.others.append(unjudged(name, words))

    async def _runs(self) -> None:
        window = self.taken.window
        [counts] = await self.taken.fetch("count_runs", window.since_us, window.until_us)
        run_count, event_count = int(counts[0]), int(counts[1])
        self.tell(f"{run_count} runs with {event_count} events touch the window")
        outbox = await reader.outbox_by_run(self.taken)
        runs = reader.RunReader(self.taken, await self.taken.terms(), outbox)
        done = told = 0
        async for batch in runs.runs():
            self.judges.add_runs(batch)
            done += len(batch)
            if done - told >= max(run_count // 10, 1_000):
                told = done
                self.tell(f"  {done} runs judged")
        self.judges.end_chain()

    async def _terms(self) -> None:
        terms = await self.taken.terms()
        for shard in await self.taken.shards():
            self.judges.terms.add(shard, terms.get(shard.shard_id, ()))

    async def _told(self) -> None:
        for client in await telling.clients(self.taken):
            self.judges.starts.add_client(client)
        async for batch in telling.told(self.taken):
            self.judges.add_told(batch)

    async def _books(self) -> None:
        stock = [StockRow(**dict(row)) for row in await self.taken.fetch("read_stock")]
        self.judges.conservation.add_stock(stock)
        window = self.taken.window
        since_us = max(window.since_us, self.kept_us)
        rows = await self.taken.fetch("read_orphans", since_us, window.until_us, ORPHANS_MAX)
        blame_orphans(self.judges.runs["I11"], [OrphanRow(**dict(row)) for row in rows])

    async def _outbox(self) -> None:
        async for page in reader.outbox_pages(self.taken):
            self.judges.outbox.add_outbox(await reader.outbox_states(self.taken, page))

    async def _health(self) -> None:
        sessions = [SessionRow(**dict(row)) for row in await self.taken.fetch("read_sessions")]
        tables = [TableRow(**dict(row)) for row in await self.taken.fetch("read_tables")]
        self.others.append(hygiene(sessions, tables))

    async def _power(self) -> None:
        if self.asked.experiment is None:
            self.others.append(unjudged("I24", "no experiment was named"))
            return
        experiment = await experiment_of(self.taken, self.asked.experiment)
        self.others.append(power(experiment, self.asked.experiment))


async def experiment_of(taken: Snapshot, name: str) -> Experiment | None:
    """Return what stands of an experiment; None if nothing does."""
    rows = await taken.fetch("read_experiment", name)
    if not rows:
        return None
    values: dict[str, Any] = dict(rows[0])
    try:
        evidence = msgspec.json.decode(values.pop("evidence"), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        evidence = None
    return Experiment(evidence=evidence, **values)


async def moment_of(taken: Snapshot, settle_seconds: float) -> Moment:
    """Return when the snapshot was taken, and when the last fault ended."""
    [row] = await taken.fetch("last_fault")
    return Moment(
        now_us=taken.now_us,
        last_fault_us=row["healed_at_us"],
        is_broken=row["is_broken"],
        settle_us=round(settle_seconds * SECOND_US),
    )


async def check(
    dsn: str, asked: Asked, *, clock: Clock, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Judge what the database holds, and write nothing.

    Args:
        dsn: The database.
        asked: What to judge.
        clock: Tells how long it took.
        tell: Told of progress, a line at a time.

    Raises:
        OSError, asyncpg.PostgresError: The database cannot be reached, or has an older schema.
    """
    began = clock.boottime()
    async with snapshot(dsn, asked.since_us, asked.until_us) as taken:
        moment = await moment_of(taken, asked.settle_seconds)
        kept_us = taken.now_us - round(asked.retention_seconds * SECOND_US)
        judging = Pass(asked, taken, Judges(moment, kept_us), kept_us, [], tell)
        await judging.read()
        window = taken.window
        earlier = await _earlier_outcomes(taken)
    outcomes = await _frozen(dsn, judging, earlier)
    judging.others.append(await replayed(dsn, asked.replay, window, tell))
    findings = complete([*judging.judges.findings(), *judging.others])
    return Report(
        since_us=window.since_us,
        until_us=window.until_us,
        experiment=asked.experiment,
        verdict=overall(findings, required(asked.experiment)),
        seconds=round(clock.boottime() - began, 3),
        findings=findings,
        outcomes=outcomes,
    )


async def _earlier_outcomes(taken: Snapshot) -> dict[str, str]:
    """Return how runs ended: as the last pass remembered, and as this snapshot shows."""
    remembered: dict[str, str] = {}
    for row in await taken.fetch("last_outcomes"):
        remembered = msgspec.json.decode(row["outcomes"], type=dict[str, str])
    window = taken.window
    chosen = await taken.fetch("choose_outcomes", window.since_us, window.until_us, OUTCOMES_MAX)
    now = await taken.fetch("read_outcomes", [row["run_id"] for row in chosen])
    return {row["run_id"]: row["digest"] for row in now} | remembered


async def _frozen(dsn: str, judging: Pass, earlier: dict[str, str]) -> dict[str, str]:
    """Read the outcomes again, on another connection, and return the newest of them."""
    frozen = judging.judges.outcomes
    try:
        connection = await connect(dsn, application_name=APPLICATION_NAME, session=SESSION)
        try:
            rows = await connection.fetch(SQL["read_outcomes"], list(earlier))
        finally:
            await connection.close(timeout=5)
    except _FAILURES as error:
        frozen.tally.doubt("I20", f"the second reading failed: {type(error).__name__}")
        return {}
    later = {row["run_id"]: row["digest"] for row in rows}
    frozen.add(earlier, later)
    return dict(list(later.items())[:OUTCOMES_MAX])


async def keep(dsn: str, report: Report) -> int:
    """Write a report to `check_result`, the only thing that the checker writes; return its number.

    Raises:
        OSError, asyncpg.PostgresError: It could not be written.
    """
    connection = await connect(dsn, application_name=APPLICATION_NAME, session=_WRITER)
    try:
        number = await connection.fetchval(
            SQL["write_result"],
            report.since_us,
            report.until_us,
            report.experiment,
            report.verdict,
            report.seconds,
            msgspec.json.encode(report.findings).decode(),
            msgspec.json.encode(report.outcomes).decode(),
        )
    finally:
        await connection.close(timeout=5)
    return int(number)
