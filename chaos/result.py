"""What an experiment came to, and the judgement of it; pure."""

from __future__ import annotations

from typing import Any

import msgspec

from .plan import Scenario, Verdict


class Draw(msgspec.Struct, kw_only=True, frozen=True):
    """How an experiment was drawn: all that running it again takes.

    Attributes:
        plan: The experiment as it was planned, with its durations.
        parameters: Of each fault, by its name: see `faults.catalogue`.
        values: What chance decided, by name: see `faults.dice`.
    """

    plan: Scenario
    parameters: dict[str, dict[str, Any]]
    values: dict[str, Any]


class Result(msgspec.Struct, kw_only=True):
    """The sum of one experiment.

    Attributes:
        experiment_id: Names it.
        scenario: What it is.
        seed: Of its choices.
        started_at: ISO 8601, UTC.
        healed_at: The same; empty while it is not.
        ended_at: The same.
        targets: Whom the faults struck.
        bites: Whether each fault was seen to bite.
        seen: What was expected to be seen, and was not (False) or was (True).
        claims: What must hold at the end, and whether it does.
        is_steady_before: Whether all was well before.
        recovered_seconds: After how long all was well again once everything was healed; None if it
            was not in time.
        counts: What became of the starts, by words.
        wrong: What must not be.
        reasons: Why nothing was shown.
        verdict: pass, fail or unknown.
        checker: What the checker said; None if it was not asked.
        draw: How it was drawn; None if it did not get so far.
        replay_of: The experiment that this one repeats; empty if it repeats none.
    """

    experiment_id: str
    scenario: str
    seed: int
    started_at: str
    healed_at: str = ""
    ended_at: str = ""
    targets: list[str] = []
    bites: dict[str, bool] = {}
    seen: dict[str, bool] = {}
    claims: dict[str, bool] = {}
    is_steady_before: bool = False
    recovered_seconds: float | None = None
    counts: dict[str, Any] = {}
    wrong: list[str] = []
    reasons: list[str] = []
    verdict: Verdict = "unknown"
    checker: Verdict | None = None
    draw: Draw | None = None
    replay_of: str = ""

    @property
    def has_bitten(self) -> bool:
        """Whether every fault bit and everything expected was seen."""
        return bool(self.bites) and all(self.bites.values()) and all(self.seen.values())


def judge(result: Result, scenario: Scenario) -> Verdict:
    """Return the verdict.

    What is wrong is wrong whether or not the fault was seen; but where nothing bit, or all was not
    well to begin with, nothing has been shown: unknown, never pass.
    """
    stall = result.counts.get("longest stall", 0.0)
    if result.is_steady_before and (
        result.wrong
        or not all(result.claims.values())
        or stall > scenario.stall_seconds
        or (result.has_bitten and result.recovered_seconds is None)
    ):
        return "fail"
    if not result.is_steady_before or not result.has_bitten or result.reasons:
        return "unknown"
    return "pass"
