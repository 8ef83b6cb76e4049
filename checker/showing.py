"""How a report is shown: a table for people, one object for programs, an exit code for scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from odin.cli.output import chat, utc, write_json, write_table

from .verdicts import PROMISES, required

if TYPE_CHECKING:
    from odin.proof.findings import Finding

    from .verdicts import Report

EXIT_CODES: Final = {"valid": 0, "invalid": 1, "unknown": 3}
_SUBJECTS_SHOWN: Final = 3


def show(report: Report, *, as_json: bool) -> int:
    """Print a report and return the exit code: 0 valid, 1 invalid, 3 unknown."""
    if as_json:
        write_json(plain(report))
    else:
        needed = required(report.experiment)
        rows = [_row(one, is_needed=one.invariant in needed) for one in report.findings]
        write_table(("INVARIANT", "VERDICT", "PROMISE", "COUNTS", "WORDS", "WHO"), rows)
        window = f"{_instant(report.since_us)} to {_instant(report.until_us)}"
        chat(f"{report.verdict}: {window}, judged in {report.seconds:.1f} s")
    return EXIT_CODES[report.verdict]


def plain(report: Report) -> dict[str, Any]:
    """Return a report as JSON shows it."""
    return {
        "verdict": report.verdict,
        "since": _instant(report.since_us),
        "until": _instant(report.until_us),
        "experiment": report.experiment,
        "seconds": report.seconds,
        "findings": [
            {
                "invariant": one.invariant,
                "verdict": one.verdict,
                "required": one.invariant in required(report.experiment),
                "counts": one.counts,
                "subjects": list(one.subjects),
                "words": one.words,
            }
            for one in report.findings
        ],
    }


def _row(one: Finding, *, is_needed: bool) -> tuple[str, ...]:
    counts = " ".join(f"{name.replace(' ', '_')}={count}" for name, count in one.counts.items())
    named = ", ".join(one.subjects[:_SUBJECTS_SHOWN])
    more = len(one.subjects) - _SUBJECTS_SHOWN
    return (
        one.invariant,
        one.verdict if is_needed or one.verdict != "unknown" else "(unknown)",
        PROMISES[one.invariant],
        counts,
        one.words,
        f"{named} and {more} more" if more > 0 else named,
    )


def _instant(us: int) -> str:
    return utc(datetime.fromtimestamp(us / 1_000_000, UTC))
