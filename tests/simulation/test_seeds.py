"""A fixed choice of seeds, each a whole cluster under faults; `make simulate` tries other ones."""

import os
import subprocess
import sys

import pytest

COUNT, STEP = 250, 25


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    """Run the simulation as its own program; `hash_seed` decides how sets of texts iterate."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": hash_seed},
    )


@pytest.mark.parametrize("first", range(0, COUNT, STEP))
def test_no_fault_breaks_a_promise(first: int) -> None:
    done = simulate("--seeds", f"{first}:{first + STEP}")  # on every core
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{STEP} seeds" in done.stdout
    assert "0 failing" in done.stdout
    assert "ms of CPU a seed" in done.stdout


@pytest.mark.parametrize("seed", [197, 100_701, 100_879])
def test_an_engine_that_is_refused_by_its_database_as_it_begins_tries_again(seed: int) -> None:
    done = simulate("--seed", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (300_274, "a bump answered after its engine had left made two engines answer"),
        (705_807, "a term joined a group its forerunner had failed in, and answered nobody"),
        (300_929, "a request's last rest was too short for any clock, and was waited for for ever"),
    ],
)
def test_a_world_in_which_something_was_found_once_is_sound(seed: int, what: str) -> None:
    done = simulate("--seed", str(seed))
    assert done.returncode == 0, what + done.stdout + done.stderr


def test_a_seed_that_fails_is_told_with_its_faults_and_the_way_to_replay_it() -> None:
    done = simulate("--seeds", "0:2", "--mutate", "timers_early", "--jobs", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "timers_not_early" in done.stdout
    assert "python -m tests.simulation --seed" in done.stdout


def test_the_same_seed_is_the_same_world_in_every_process() -> None:
    traces: dict[int, set[str]] = {
        seed: {
            simulate("--seed", str(seed), hash_seed=one).stdout.rpartition("trace ")[2].split()[0]
            for one in ("1", "2")
        }
        for seed in (4, 5, 7)
    }
    assert {len(found) for found in traces.values()} == {1}
    assert len(set().union(*traces.values())) == len(traces)
