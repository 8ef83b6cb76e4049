"""How a rule gathers what it finds, and what that adds up to."""

from __future__ import annotations

from collections import Counter

from odin.proof.findings import INVALID, SUBJECTS_MAX, UNKNOWN, VALID, Finding, Verdict


class Ruling:
    """What one rule has found so far.

    What is wrong outweighs what is unclear: a run that broke a promise did so however little else
    is known of it.
    """

    def __init__(self, invariant: str) -> None:
        self._invariant = invariant
        self._wrong: list[tuple[str, str]] = []
        self._unclear: list[tuple[str, str]] = []
        self._counts: Counter[str] = Counter()

    def wrong(self, subject: str, words: str) -> None:
        """Note that the promise was broken for `subject`."""
        self._wrong.append((subject, words))

    def unclear(self, subject: str, words: str) -> None:
        """Note that nothing can be said of `subject`, and why."""
        self._unclear.append((subject, words))

    def count(self, what: str, number: int = 1) -> None:
        """Add to how much was judged."""
        self._counts[what] += number

    def most(self, what: str, number: int) -> None:
        """Keep the larger of `number` and what was there."""
        self._counts[what] = max(self._counts[what], number)

    def finding(self, promise: str) -> Finding:
        """Return the answer; `promise` is what a valid one says."""
        found = self._wrong or self._unclear
        if not found:
            return Finding(
                invariant=self._invariant,
                verdict=VALID,
                words=promise,
                counts=dict(self._counts),
            )
        verdict: Verdict = INVALID if self._wrong else UNKNOWN
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Finding(
            invariant=self._invariant,
            verdict=verdict,
            subjects=tuple(dict.fromkeys(subject for subject, _ in found))[:SUBJECTS_MAX],
            words=f"{found[0][0]}: {found[0][1]}{more}",
            counts={**self._counts, verdict: len(found)},
        )
