"""What a verdict needs: a fault that was seen to bite, and a cluster that came back."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.evidence import shown
from chaos.result import Result, judge
from chaos.scenarios import SCENARIOS
from checker.invariants.circumstances import power
from checker.invariants.rows import Experiment

KILL = SCENARIOS[0]


def result(**fields: Any) -> Result:  # noqa: ANN401 - the fields of a result
    whole: dict[str, Any] = {
        "experiment_id": "x",
        "scenario": KILL.name,
        "seed": 1,
        "started_at": "2026-01-01T00:00:00+00:00",
        "bites": {"kill engine": True},
        "seen": {"takeover": True},
        "is_steady_before": True,
        "recovered_seconds": 1.0,
        "counts": {"longest stall": 9.0},
    }
    return Result(**{**whole, **fields})


def test_a_fault_that_bit_and_a_cluster_that_came_back_pass() -> None:
    assert judge(result(), KILL) == "pass"


@pytest.mark.parametrize(
    "fields",
    [
        {"bites": {"kill engine": False}},
        {"bites": {}},
        {"seen": {"takeover": False}},
        {"is_steady_before": False},
        {"reasons": ["no proxies"]},
    ],
)
def test_where_nothing_was_shown_the_verdict_is_unknown(fields: dict[str, Any]) -> None:
    assert judge(result(**fields), KILL) == "unknown"


@pytest.mark.parametrize(
    "fields",
    [
        {"wrong": ["charged twice"]},
        {"wrong": ["charged twice"], "bites": {"kill engine": False}},
        {"claims": {"no lease lost": False}},
        {"counts": {"longest stall": KILL.stall_seconds + 0.1}},
        {"recovered_seconds": None},
    ],
)
def test_what_must_not_be_fails_whether_or_not_the_fault_was_seen(fields: dict[str, Any]) -> None:
    assert judge(result(**fields), KILL) == "fail"


@pytest.mark.parametrize("has_bitten", [True, False])
def test_the_checker_reads_from_the_evidence_whether_the_faults_bit(*, has_bitten: bool) -> None:
    found = result(seen={"takeover": has_bitten})
    row = Experiment(
        id="x",
        scenario=KILL.name,
        status="ended",
        started_at_us=1,
        healed_at_us=2,
        ended_at_us=3,
        evidence=shown(found),
    )
    assert power(row, "x").verdict == ("valid" if has_bitten else "unknown")
