"""How an experiment is told to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odin.cli.output import shorten

if TYPE_CHECKING:
    from .journal import Line
    from .plan import Scenario
    from .result import Result


def told_line(line: Line, *, whole: bool = False) -> str:
    """Return a line of the journal in one line, with all its details if it is to be whole."""
    limit = 2_000 if whole else 100
    details = "  ".join(f"{key}: {shorten(value, limit)}" for key, value in line.details.items())
    shown = details if whole or line.phase != "judged" else ""
    return f"{line.at[11:19]}  {line.phase:<9}  {shown}".rstrip()


def told(result: Result, scenario: Scenario) -> list[str]:
    """Return what came of an experiment in lines."""
    counts = result.counts
    lines = [
        f"{result.scenario}: {result.verdict.upper()}",
        f"  claimed     {scenario.hypothesis}",
        f"  struck      {'; '.join(result.targets) or 'nobody'}",
        f"  bit         {_yes_no({**result.bites, **result.seen})}",
    ]
    if result.claims:
        lines.append(f"  held        {_yes_no(result.claims)}")
    if counts:
        lines.append(
            f"  starts      {counts['started']}: accepted {counts['accepted']}, finished "
            f"{counts['finished']}, asked again {counts['asked again']}"
        )
        lines.append(
            f"  stall       {counts['longest stall']} s, at most {scenario.stall_seconds:g}"
        )
    recovered = result.recovered_seconds
    if counts:
        lines.append(
            "  recovered   "
            + ("not in time" if recovered is None else f"{recovered} s after it was healed")
        )
    lines += [f"  WRONG       {one}" for one in result.wrong]
    lines += [f"  because     {one}" for one in result.reasons]
    return lines


def _yes_no(found: dict[str, bool]) -> str:
    return ", ".join(f"{name}: {'yes' if yes else 'NO'}" for name, yes in found.items()) or "-"
