"""Odin with one guard taken out: the simulation sees it, each time at a seed that stands here."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.test_seeds import simulate

FOUND_AT = {
    "answer_before_commit": 0,
    "repeat_before_commit": 0,
    "memory_kept_after_unknown": 0,
    "eviction_before_commit": 0,
    "claim_without_compare": 0,
    "timers_early": 0,
    "no_bump_after_unknown": 0,
    "requests_forgotten": 0,
}


@pytest.mark.parametrize(("name", "seed"), FOUND_AT.items())
def test_a_guard_that_is_gone_is_missed(name: str, seed: int) -> None:
    assert name in MUTATIONS
    done = simulate("--seed", str(seed), "--mutate", name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout


def test_without_a_mutation_the_same_seed_is_sound() -> None:
    kinds = MUTATIONS["answer_before_commit"].kinds or []
    assert simulate("--seed", "0", "--kinds", *kinds).returncode == 0
