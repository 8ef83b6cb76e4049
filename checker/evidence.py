"""The rows of a small window, all in memory: what the self-test spoils, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError

from . import reader, telling
from .invariants.circumstances import hygiene, power, schedules
from .invariants.conservation import blame_orphans
from .invariants.rows import (
    ClientRow,
    Experiment,
    Moment,
    OrphanRow,
    OutboxState,
    SessionRow,
    ShardRow,
    StockRow,
    TableRow,
    Told,
)
from .judging import Judges
from .passes import moment_of
from .snapshot import snapshot

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import RunRows, TermRow

    from .snapshot import Snapshot

RUNS_MAX: Final = 2_000
EXPERIMENT: Final = "self-test"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a pass reads, as it was read. Each field is what its judge is fed with."""

    moment: Moment
    runs: tuple[RunRows, ...] = ()
    shards: tuple[ShardRow, ...] = ()
    terms: tuple[TermRow, ...] = ()
    clients: tuple[ClientRow, ...] = ()
    told: tuple[Told, ...] = ()
    stock: tuple[StockRow, ...] = ()
    orphans: tuple[OrphanRow, ...] = ()
    outbox: tuple[OutboxState, ...] = ()
    sessions: tuple[SessionRow, ...] = ()
    tables: tuple[TableRow, ...] = ()
    earlier: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    experiment: Experiment | None = None


def judged(evidence: Evidence) -> dict[str, Finding]:
    """Return the finding of every invariant but I18, which needs a process of its own."""
    judges = Judges(evidence.moment)
    judges.add_runs(evidence.runs)
    judges.end_chain()
    for shard in evidence.shards:
        judges.terms.add(shard, [one for one in evidence.terms if one.shard_id == shard.shard_id])
    for client in evidence.clients:
        judges.starts.add_client(client)
    judges.add_told(evidence.told)
    judges.conservation.add_stock(evidence.stock)
    blame_orphans(judges.runs["I11"], evidence.orphans)
    judges.outbox.add_outbox(evidence.outbox)
    judges.outcomes.add(evidence.earlier, evidence.later)
    found = {one.invariant: one for one in judges.findings()}
    for finding in (
        hygiene(evidence.sessions, evidence.tables),
        power(evidence.experiment, EXPERIMENT),
        schedules(0),
    ):
        found[finding.invariant] = finding
    return found


async def collected(dsn: str, since_us: int) -> Evidence:
    """Read the runs since `since_us` into memory, with an experiment that has taken effect.

    Raises:
        FailedPreconditionError: There are too many runs to hold them.
        OSError, asyncpg.PostgresError: The database cannot be reached or read.
    """
    async with snapshot(dsn, since_us, None) as taken:
        window = taken.window
        [counts] = await taken.fetch("count_runs", window.since_us, window.until_us)
        if counts[0] > RUNS_MAX:
            raise FailedPreconditionError(
                f"{counts[0]} runs are too many for a self-test: shorten --since"
            )
        return await _collected(taken)


async def _collected(taken: Snapshot) -> Evidence:
    window = taken.window
    terms = await taken.terms()
    outbox = [row async for page in reader.outbox_pages(taken) for row in page]
    runs = reader.RunReader(taken, terms, await reader.outbox_by_run(taken))
    chosen = await taken.fetch("choose_outcomes", window.since_us, window.until_us, RUNS_MAX)
    outcomes = await taken.fetch("read_outcomes", [row["run_id"] for row in chosen])
    digests = {row["run_id"]: row["digest"] for row in outcomes}
    return Evidence(
        moment=await moment_of(taken, 60.0),
        runs=tuple([one async for batch in runs.runs() for one in batch]),
        shards=tuple(await taken.shards()),
        terms=tuple(term for own in terms.values() for term in own),
        clients=tuple(await telling.clients(taken)),
        told=tuple([one async for batch in telling.told(taken) for one in batch]),
        stock=tuple(StockRow(**dict(row)) for row in await taken.fetch("read_stock")),
        outbox=tuple(await reader.outbox_states(taken, outbox)),
        sessions=tuple(SessionRow(**dict(row)) for row in await taken.fetch("read_sessions")),
        tables=tuple(TableRow(**dict(row)) for row in await taken.fetch("read_tables")),
        earlier=digests,
        later=digests,
        experiment=_experiment(taken.now_us),
    )


def _experiment(now_us: int) -> Experiment:
    """Return an experiment as it should be; the self-test is about the judge and not about it."""
    return Experiment(
        id=EXPERIMENT,
        scenario="none",
        status="ended",
        started_at_us=now_us,
        healed_at_us=now_us,
        ended_at_us=now_us,
        evidence={"faults": [{"fault": "nothing", "bit": True}]},
    )
