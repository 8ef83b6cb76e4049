"""What a rule answers: valid, invalid or unknown, about which things, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["valid", "invalid", "unknown"]
VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"

NAMES: Final = {
    "I1": "dense history",
    "I2": "one start, one end",
    "I3": "written under its fence",
    "I5": "one cause, one resolution",
    "I6": "nothing left or forgotten",
    "I10": "charged once",
    "I11": "every effect asked for",
    "I12": "effects in order",
    "I15": "one claim an attempt",
    "I16": "no early timer",
    "I19": "one successor",
}
"""What each invariant promises, in a few words."""

SUBJECTS_MAX: Final = 20
"""Subjects that a finding names; `counts` holds how many there are."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one invariant.

    `subjects` are the ids of what is wrong, or of what cannot be judged; empty for valid. `words`
    is one sentence. `counts` says how much was judged, and how many things are wrong.
    """

    invariant: str
    verdict: Verdict
    subjects: tuple[str, ...] = ()
    words: str = ""
    counts: dict[str, int] = msgspec.field(default_factory=dict)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return invalid if any finding is, else unknown if any is or there is none, else valid."""
    verdicts = {finding.verdict for finding in findings}
    if INVALID in verdicts:
        return INVALID
    return UNKNOWN if UNKNOWN in verdicts or not verdicts else VALID
