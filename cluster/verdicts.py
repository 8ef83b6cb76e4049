"""Judges the demo from what stands in Postgres and in the client log; pure, knows no engine code.

*Finished*: completed, or compensated with everything undone. *Charged once*: one charge of the
right amount when completed; at most one, and given back, when compensated. *In order*: reserve,
charge, ship, assign, and whatever is undone, undone in reverse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .client_log import Started

STEPS: Final = ("reserve", "charge", "ship", "assign")
UNDO: Final = {
    "unassign": "assign",
    "cancel_shipment": "ship",
    "refund": "charge",
    "unreserve": "reserve",
}
IDS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its rows tell it; `outcome` is the `status` in its result, if it has one."""

    workflow_id: str
    run_id: str
    status: str
    next_event_id: int
    event_count: int
    first_event_id: int
    last_event_id: int
    closing_type: str
    outcome: str

    @property
    def is_dense(self) -> bool:
        """Whether its events are numbered 1 to n without a gap, and n is what its row says."""
        last = self.next_event_id - 1
        return (self.first_event_id, self.last_event_id, self.event_count) == (1, last, last)


@dataclass(frozen=True, slots=True)
class Effect:
    """One row of a mock's ledger; an order of a subscription is one period of it."""

    seq: int
    effect: str
    order_id: str
    workflow_id: str
    amount_cents: int


@dataclass(slots=True)
class Summary:
    """What the verification found.

    Attributes:
        counts: started, accepted, refused, unknown, completed, compensated, charges, refunds, …
        problems: What is wrong → whom it is wrong with (the first twenty).
        problem_counts: What is wrong → with how many.
    """

    counts: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    problem_counts: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem_counts

    def blame(self, problem: str, who: str) -> None:
        """Note that `problem` holds for `who`."""
        self.problem_counts[problem] = self.problem_counts.get(problem, 0) + 1
        named = self.problems.setdefault(problem, [])
        if len(named) < IDS_SHOWN_MAX:
            named.append(who)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + number


def judge(
    started: Sequence[Started],
    runs: Iterable[Run],
    effects: Iterable[Effect],
    stock_lost: Iterable[str] = (),
) -> Summary:
    """Return what is right and wrong with everything that was started.

    Args:
        started: The starts of the client log with their outcomes.
        runs: Every run of their workflow ids.
        effects: Every ledger row of their orders, by `seq`.
        stock_lost: SKUs whose stock does not add up.
    """
    summary = Summary()
    runs_of: dict[str, list[Run]] = defaultdict(list)
    effects_of: dict[str, list[Effect]] = defaultdict(list)
    for run in runs:
        runs_of[run.workflow_id].append(run)
    for effect in effects:
        effects_of[effect.workflow_id].append(effect)
        summary.count(f"effects_{effect.effect}")
    for one in started:
        summary.count("started")
        summary.count({"ok": "accepted", "fail": "refused"}.get(one.outcome, "unknown"))
        _judge_start(summary, one, runs_of[one.workflow_id], effects_of[one.workflow_id])
    for sku in stock_lost:
        summary.blame("stock not conserved", sku)
    return summary


def _judge_start(
    summary: Summary, one: Started, runs: Sequence[Run], effects: Sequence[Effect]
) -> None:
    if not runs:
        if one.outcome == "ok":
            summary.blame("accepted start lost", one.workflow_id)
        if effects:
            summary.blame("effects without an execution", one.workflow_id)
        return
    if one.outcome == "fail":
        summary.blame("refused start ran", one.workflow_id)
    summary.count("runs", len(runs))
    for run in runs:
        if not run.is_dense:
            summary.blame("event ids not dense", f"{run.workflow_id}/{run.run_id}")
    if one.workflow_type == "subscription":
        _judge_subscription(summary, one, runs, effects)
    else:
        _judge_order(summary, one, runs, effects)


def _judge_order(
    summary: Summary, one: Started, runs: Sequence[Run], effects: Sequence[Effect]
) -> None:
    if len(runs) > 1:
        summary.blame("started twice", one.workflow_id)
    run = runs[-1]
    if run.status == "running":
        summary.blame("not closed", one.workflow_id)
        return
    outcome = run.outcome if run.status == "completed" else ""
    if outcome not in {"completed", "compensated"}:
        summary.blame(f"not finished: {run.status}", one.workflow_id)
        return
    summary.count(outcome)
    names = [effect.effect for effect in effects if effect.effect != "deliver"]
    if outcome == "completed":
        faults = faults_of_completed(names, _charged(effects), one.amount_cents)
    else:
        faults = faults_of_compensated(names, _charged(effects), _refunded(effects))
    for fault in faults:
        summary.blame(fault, one.workflow_id)


def faults_of_completed(names: Sequence[str], charged_cents: int, amount_cents: int) -> list[str]:
    """Return what is wrong with the effects of a completed order, by `seq`."""
    faults = []
    if names.count("charge") != 1 or "refund" in names:
        faults.append("not charged exactly once")
    elif charged_cents != amount_cents:
        faults.append("charged another amount")
    if list(names) != list(STEPS):
        faults.append("steps not in order, once each")
    return faults


def faults_of_compensated(
    names: Sequence[str], charged_cents: int, refunded_cents: int
) -> list[str]:
    """Return what is wrong with the effects of an order that was given up, by `seq`."""
    faults = []
    if names.count("charge") > 1 or refunded_cents != charged_cents:
        faults.append("charged and not given back")
    forward = [name for name in names if name in STEPS]
    if forward != list(STEPS[: len(forward)]):
        faults.append("steps not in order, once each")
    undone = [UNDO[name] for name in names if name in UNDO]
    if undone != forward[::-1]:
        faults.append("not undone in reverse, once each")
    elif list(names[: len(forward)]) != forward:
        faults.append("a step after the order was given up")
    return faults


def _judge_subscription(
    summary: Summary, one: Started, runs: Sequence[Run], effects: Sequence[Effect]
) -> None:
    summary.count("subscription_runs", len(runs))
    if runs[-1].status == "running" and one.cancel == "ok":
        summary.blame("not closed", one.workflow_id)
    if any(run.status != "continued_as_new" for run in runs[:-1]):
        summary.blame("chain broken", one.workflow_id)
    by_period: Mapping[int, list[str]] = defaultdict(list)
    for effect in effects:
        by_period[int(effect.order_id.rpartition(".")[2])].append(effect.effect)
    for period, names in sorted(by_period.items()):
        if names not in (["charge"], ["charge", "refund"]):
            summary.blame("period not charged exactly once", f"{one.workflow_id}.{period}")
    # Each run but the last has charged its period; the last may have, and be on its way out.
    if sorted(by_period) not in (list(range(1, len(runs))), list(range(1, len(runs) + 1))):
        summary.blame("periods not charged in a row", one.workflow_id)


def _charged(effects: Iterable[Effect]) -> int:
    return sum(effect.amount_cents for effect in effects if effect.effect == "charge")


def _refunded(effects: Iterable[Effect]) -> int:
    return sum(effect.amount_cents for effect in effects if effect.effect == "refund")
