"""All rules, put to the rows of a run or of a chain of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from odin.proof.activity_rules import claims
from odin.proof.chain_rules import successors
from odin.proof.effect_rules import charged_once, in_order, recorded
from odin.proof.fence_rules import fence
from odin.proof.findings import UNKNOWN, Finding
from odin.proof.history_rules import causality, completeness, dense_history, shape, timers

if TYPE_CHECKING:
    from odin.proof.rows import Chain, RunRows

R = TypeVar("R")

RUN_RULES: Final[tuple[tuple[str, Callable[[RunRows], Finding]], ...]] = (
    ("I1", dense_history),
    ("I2", shape),
    ("I3", fence),
    ("I5", causality),
    ("I6", completeness),
    ("I10", charged_once),
    ("I11", recorded),
    ("I12", in_order),
    ("I15", claims),
    ("I16", timers),
)
CHAIN_RULES: Final[tuple[tuple[str, Callable[[Chain], Finding]], ...]] = (("I19", successors),)


def judge_run(rows: RunRows) -> tuple[Finding, ...]:
    """Return one finding for each rule of `RUN_RULES`, in that order."""
    return tuple(_ruled(invariant, rule, rows, rows.run_id) for invariant, rule in RUN_RULES)


def judge_chain(chain: Chain) -> tuple[Finding, ...]:
    """Return one finding for each rule of `CHAIN_RULES`; the runs themselves are not judged."""
    return tuple(
        _ruled(invariant, rule, chain, chain.workflow_id) for invariant, rule in CHAIN_RULES
    )


def _ruled(invariant: str, rule: Callable[[R], Finding], rows: R, subject: str) -> Finding:
    """Return what the rule says; a rule that stumbles over damaged rows says nothing."""
    try:
        return rule(rows)
    except Exception as error:  # noqa: BLE001 - a verdict must be given, and it is never "valid"
        return Finding(
            invariant=invariant,
            verdict=UNKNOWN,
            subjects=(subject,),
            words=f"{subject}: the rule could not be put: {type(error).__name__}: {error}",
        )
