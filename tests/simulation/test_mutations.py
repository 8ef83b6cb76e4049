"""Odin with a guard taken out: the simulation sees it, within a few seeds from the first on."""

import pytest

from tests.simulation.mutations import EQUIVALENT, FOUND, MUTATIONS
from tests.simulation.test_seeds import simulate

DEAR = {
    "sweeper_off",
    "refusal_ignored",
    "outbox_row_dropped_and_nothing_again",
    "gathering_kept_and_restamped",
    "no_repeats",
    "result_without_token",
}
"""They take ten seeds and more: `python -m tests.simulation --mutations` tries them too."""
CHEAP = [name for name in FOUND if name not in DEAR]


@pytest.mark.parametrize("names", [CHEAP[at::4] for at in range(4)], ids=" ".join)
def test_guards_that_are_gone_are_missed(names: list[str]) -> None:
    done = simulate("--mutations", *names, "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" seeds: ") == len(names)
    assert "missed: none" in done.stdout


def test_every_mutation_is_found_or_has_its_reason() -> None:
    assert set(MUTATIONS) == {*FOUND, *EQUIVALENT}


@pytest.mark.parametrize("name", ["answer_before_commit", "closed_unseen", "renewal_from_reply"])
def test_without_the_mutation_the_same_seed_is_sound(name: str) -> None:
    kinds = MUTATIONS[name].kinds or []
    done = simulate("--seed", str(FOUND[name]), "--kinds", *kinds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", [3, 7])
def test_a_calm_cluster_does_not_live_on_tasks_that_are_published_again(seed: int) -> None:
    done = simulate("--seed", str(seed), "--calm", "--mutate", "republish_off")
    assert done.returncode == 0, done.stdout + done.stderr
