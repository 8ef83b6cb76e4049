"""The plan of experiments: orders by seed, never Postgres away twice, instants, verdicts; pure."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import plan
from chaos.faults.catalogue import FAULTS
from chaos.plan import (
    FAST,
    SCHEDULED,
    Timing,
    may_run_together,
    rotation,
    scenario_of,
    slot,
    worst,
)
from chaos.scenarios import SCENARIOS
from chaos.witness import LOOKS
from odin.errors import InvalidArgumentError, NotFoundError

SEEDS = st.integers(0, 2**31)
CYCLES = st.integers(0, 50)


@given(SEEDS, CYCLES)
def test_every_cycle_runs_every_experiment_once(seed: int, cycle: int) -> None:
    found = rotation(seed, cycle, SCENARIOS)
    assert sorted(one.name for one in found) == sorted(one.name for one in SCENARIOS)


@given(SEEDS, CYCLES)
def test_two_experiments_that_take_postgres_away_never_follow_one_another(
    seed: int, cycle: int
) -> None:
    both = [*rotation(seed, cycle, SCENARIOS), *rotation(seed, cycle + 1, SCENARIOS)]
    away = ["postgres" in one.removes for one in both]
    assert not any(one and next_ for one, next_ in pairwise(away))


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    orders = {tuple(one.name for one in rotation(seed, 0, SCENARIOS)) for seed in range(20)}
    assert len(orders) == 20
    assert rotation(7, 3, SCENARIOS) == rotation(7, 3, tuple(reversed(SCENARIOS)))
    assert rotation(7, 3, SCENARIOS) != rotation(7, 4, SCENARIOS)


def test_an_experiment_begins_every_ten_minutes_and_is_judged_seven_minutes_later() -> None:
    first, later = slot(1, 0, SCENARIOS, SCHEDULED), slot(1, 30, SCENARIOS, SCHEDULED)
    assert later.at - first.at == 30 * 600
    assert later.verdict_at - later.at == 420
    assert later.scenario == rotation(1, 1, SCENARIOS)[30 - len(SCENARIOS)]
    assert {slot(1, number, SCENARIOS, FAST).at for number in range(5)} == {0.0}


def test_a_verdict_after_the_next_experiment_has_begun_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="before the next"):
        Timing(every=60, verdict_after=61)
    with pytest.raises(InvalidArgumentError, match="negative"):
        Timing(first=-1)
    with pytest.raises(InvalidArgumentError, match="no scenario"):
        slot(1, 0, (), SCHEDULED)


def test_two_faults_may_not_take_the_same_server_away() -> None:
    restart, backends = (
        scenario_of(one, SCENARIOS) for one in ("postgres-restart", "kill-backends")
    )
    assert not may_run_together(restart, backends)
    assert may_run_together(restart, scenario_of("valkey-down", SCENARIOS))


def test_every_hazard_of_the_list_has_an_experiment_that_is_complete() -> None:
    assert {one.number for one in SCENARIOS} == set(range(1, 26))
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    for one in SCENARIOS:
        assert set(one.faults) <= set(FAULTS), one.name
        assert set(one.expects) | set(one.claims) <= set(LOOKS), one.name
        assert one.hypothesis.endswith("."), one.name
        # Over, healed and settled before the checker is asked.
        assert one.hold_seconds + one.recover_seconds < SCHEDULED.verdict_after, one.name


def test_an_unknown_experiment_is_refused_with_those_that_are_alike() -> None:
    with pytest.raises(NotFoundError, match="kill-engine-node"):
        scenario_of("kill-engine", SCENARIOS)


def test_the_worst_of_several_verdicts_counts_and_of_none_nothing_is_known() -> None:
    assert worst(["pass", "unknown", "fail"]) == "fail"
    assert worst(["pass", "unknown"]) == "unknown"
    assert worst(["pass"]) == "pass"
    assert worst([]) == "unknown"


def test_the_plan_does_no_io_and_tells_no_time() -> None:
    tree = ast.parse(inspect.getsource(plan))
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    allowed = {"__future__", "collections.abc", "dataclasses", "hashlib", "typing", "odin.errors"}
    assert imported <= allowed


def test_few_experiments_are_all_run_even_if_most_take_postgres_away() -> None:
    hard = [replace(SCENARIOS[0], name=f"s{n}", removes=frozenset({"postgres"})) for n in range(3)]
    found = rotation(1, 0, [*hard, SCENARIOS[1]])
    assert len(found) == 4
