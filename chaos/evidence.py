"""The sum of each experiment as a row of `chaos_experiment`, for the checker and the dashboard.

Lossless is the journal; this is a copy. Postgres may be the victim: a row that cannot be written
now is written with the next state of the experiment, and a database without the table gets none.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.runtime.sql import load_queries

from .faults.books import Books, BooksClosedError

if TYPE_CHECKING:
    from .plan import Verdict
    from .result import Result

SQL: Final = load_queries(__package__)
# The words of the table.
WORDS: Final[dict[Verdict, str]] = {"pass": "valid", "fail": "invalid", "unknown": "unknown"}


async def kept(books: Books, result: Result, status: str) -> bool:
    """Write the row of an experiment; return whether it was written.

    Args:
        books: Postgres.
        result: What came of it so far.
        status: running, healed, or ended.
    """
    is_over = bool(result.ended_at)
    try:
        async with books.open() as connection:
            if not await connection.fetchval(SQL["has_table"]):
                return False
            await connection.execute(
                SQL["write_experiment"],
                result.experiment_id,
                result.scenario,
                result.seed,
                status,
                datetime.fromisoformat(result.started_at),
                _instant(result.healed_at),
                _instant(result.ended_at),
                msgspec.json.encode(shown(result)).decode(),
                WORDS[result.verdict] if is_over else None,
            )
    except BooksClosedError:
        return False
    return True


async def ended(books: Books, experiment_id: str, at: datetime) -> bool:
    """Note that an experiment whose runner was killed is healed; return whether it was noted."""
    try:
        async with books.open() as connection:
            if await connection.fetchval(SQL["has_table"]):
                await connection.execute(SQL["end_experiment"], experiment_id, at)
                return True
    except BooksClosedError:
        return False
    return False


def shown(result: Result) -> dict[str, Any]:
    """Return what is known of an experiment, as it becomes JSON.

    `faults` lists each fault and whatever else had to be seen, with `bit`: whether it was. The
    checker holds a verdict back where one was not.
    """
    faults = [{"fault": name, "bit": bit} for name, bit in result.bites.items()]
    faults += [{"fault": f"seen: {name}", "bit": bit} for name, bit in result.seen.items()]
    return {
        "faults": faults,
        "targets": result.targets,
        "claims": result.claims,
        "steady_before": result.is_steady_before,
        "recovered_seconds": result.recovered_seconds,
        "counts": result.counts,
        "wrong": result.wrong,
        "reasons": result.reasons,
        "own_verdict": result.verdict,
        "checker": result.checker,
        "draw": msgspec.to_builtins(result.draw),
        "replay_of": result.replay_of,
    }


def _instant(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
