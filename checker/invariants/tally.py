"""Adds up what one invariant has judged, over any number of rows, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odin.proof.findings import INVALID, SUBJECTS_MAX, UNKNOWN, VALID, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

PROBLEMS_SHOWN_MAX: Final = 4
PROBLEMS_KEPT_MAX: Final = 100
OTHER: Final = "something else"
BROKEN: Final = "wrong"
UNCLEAR: Final = "unknown"
LARGEST: Final = "latest_"
"""What the name of a count begins with that is a maximum and no sum."""


@dataclass(slots=True)
class Tally:
    """What is known of one invariant.

    Attributes:
        invariant: "I4".
        idle: What to say when there was nothing to judge.
        idle_is_unknown: Whether nothing to judge means that nothing is proven. False where the
            absence is itself what was looked at: without a signal, none was lost.
        counts: What was looked at, by kind.
    """

    invariant: str
    idle: str
    idle_is_unknown: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _judged: int = 0
    _wrong: Counter[str] = field(default_factory=Counter)
    _doubts: Counter[str] = field(default_factory=Counter)
    _offenders: list[str] = field(default_factory=list)
    _doubtful: list[str] = field(default_factory=list)

    def judge(self, count: int = 1, kind: str = "judged") -> None:
        """Note that `count` things of a kind were looked at."""
        self._judged += count
        self.counts[kind] += count

    def blame(self, subject: str, problem: str) -> None:
        """Note that `problem`, in a few words that are the same for all, holds for `subject`."""
        self.counts[BROKEN] += 1
        _count(self._wrong, problem)
        _note(self._offenders, subject)

    def doubt(self, subject: str, problem: str) -> None:
        """Note that something cannot be judged, and why."""
        self.counts[UNCLEAR] += 1
        _count(self._doubts, problem)
        _note(self._doubtful, subject)

    def add(self, finding: Finding) -> None:
        """Add the finding of one run or one chain."""
        self._judged += 1
        self.counts["judged"] += 1
        for name, count in finding.counts.items():
            if name.startswith(LARGEST):
                self.counts[name] = max(self.counts[name], count)
            elif name not in {INVALID, UNKNOWN}:
                self.counts[name] += count
        problem = finding.words.removeprefix(f"{next(iter(finding.subjects), '')}: ")
        if finding.verdict == INVALID:
            self.counts[BROKEN] += 1
            _count(self._wrong, problem)
            for subject in finding.subjects:
                _note(self._offenders, subject)
        elif finding.verdict == UNKNOWN:
            self.counts[UNCLEAR] += 1
            _count(self._doubts, problem)
            for subject in finding.subjects:
                _note(self._doubtful, subject)

    def finding(self) -> Finding:
        """Return what it all adds up to: one wrong outweighs any doubt, one doubt any right."""
        counts = {name: count for name, count in self.counts.items() if count}
        if self._wrong:
            return self._told(INVALID, self._offenders, _words(self._wrong), counts)
        if self._doubts:
            return self._told(UNKNOWN, self._doubtful, _words(self._doubts), counts)
        if not self._judged:
            verdict = UNKNOWN if self.idle_is_unknown else VALID
            return self._told(verdict, [], f"nothing to judge: {self.idle}", counts)
        return self._told(VALID, [], "", counts)

    def _told(
        self, verdict: str, subjects: list[str], words: str, counts: dict[str, int]
    ) -> Finding:
        return Finding(
            invariant=self.invariant,
            verdict=INVALID if verdict == INVALID else UNKNOWN if verdict == UNKNOWN else VALID,
            subjects=tuple(subjects),
            words=words,
            counts=counts,
        )


def unjudged(invariant: str, words: str) -> Finding:
    """Return that an invariant could not be judged, and why."""
    return Finding(invariant=invariant, verdict=UNKNOWN, words=words)


def ids(subjects: Iterable[object]) -> str:
    """Return the parts of a subject as one id: shard, range; workflow, run."""
    return "/".join(str(one) for one in subjects)


def _note(known: list[str], subject: str) -> None:
    if len(known) < SUBJECTS_MAX and subject not in known:
        known.append(subject)


def _count(problems: Counter[str], problem: str) -> None:
    if problem not in problems and len(problems) >= PROBLEMS_KEPT_MAX:
        problem = OTHER
    problems[problem] += 1


def _words(problems: Counter[str]) -> str:
    shown = [f"{count} x {problem}" for problem, count in problems.most_common(PROBLEMS_SHOWN_MAX)]
    rest = len(problems) - len(shown)
    return "; ".join([*shown, f"{rest} other problems"] if rest > 0 else shown)
