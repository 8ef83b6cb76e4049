"""What a pass of the checker found, and the one verdict that it adds up to; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from odin.proof.findings import INVALID, UNKNOWN, VALID, Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

PROMISES: Final[dict[str, str]] = {
    "I1": "histories are dense",
    "I2": "histories begin and end once",
    "I3": "every write was inside its term",
    "I4": "terms follow one another",
    "I5": "every answer has its question",
    "I6": "nothing pending is left in a closed run",
    "I7": "no start is lost, none happens twice",
    "I8": "no signal is lost, none out of order",
    "I9": "what is open goes on",
    "I10": "charged at most once",
    "I11": "no effect that no history knows",
    "I12": "steps in order, undone in reverse",
    "I13": "money and goods are conserved",
    "I14": "every task is on its way",
    "I15": "one accepted claim per attempt",
    "I16": "timers fire once, and not early",
    "I17": "schedules fire once",
    "I18": "replay gives the same commands",
    "I19": "chains of runs are unbroken",
    "I20": "outcomes stay as they are",
    "I21": "what a client sees never goes back",
    "I22": "refusals say when to come back",
    "I23": "the database is in order",
    "I24": "the faults took effect",
}
"""Every invariant that a pass answers, and what it promises, in the order of the report."""

OPTIONAL: Final = frozenset({"I17", "I21", "I22", "I24"})
"""Invariants whose *unknown* does not make the whole unknown; I24 is required of an experiment."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One pass.

    Attributes:
        since_us: Where the window began, microseconds since 1970.
        until_us: Where it ended.
        experiment: Whose evidence was judged, if anyone's.
        verdict: What it all adds up to.
        seconds: How long the pass took.
        findings: One for each of `PROMISES`, in their order.
        outcomes: Run id → digest: how some closed runs ended, for the next pass.
    """

    since_us: int
    until_us: int
    experiment: str | None
    verdict: Verdict
    seconds: float
    findings: tuple[Finding, ...]
    outcomes: dict[str, str] = {}


def required(experiment: str | None) -> frozenset[str]:
    """Return the invariants without which nothing is proven."""
    optional = OPTIONAL if experiment is None else OPTIONAL - {"I24"}
    return frozenset(PROMISES) - optional


def complete(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each invariant, in order; those that nobody judged are unknown."""
    by_name = {one.invariant: one for one in findings}
    return tuple(
        by_name.get(name, Finding(invariant=name, verdict=UNKNOWN, words="was not judged"))
        for name in PROMISES
    )


def overall(findings: Iterable[Finding], needed: frozenset[str]) -> Verdict:
    """Return invalid if anything is; else unknown if something that is needed is; else valid.

    What is needed and was not found at all is unknown too.
    """
    verdicts = {one.invariant: one.verdict for one in findings}
    if INVALID in verdicts.values():
        return INVALID
    return VALID if all(verdicts.get(name) == VALID for name in needed) else UNKNOWN
