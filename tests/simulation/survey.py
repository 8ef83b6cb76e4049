"""How many seeds each mutation takes to be found: `python -m tests.simulation --mutations`."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.simulation.hunting import Settings, run_seed
from tests.simulation.mutations import FOUND, MUTATIONS

SEEDS_MAX: Final = 40
_Found = tuple[str, int, float, str]


def survey(names: Sequence[str], jobs: int) -> int:
    """Try mutations (all if none is named) from seed 0 on; return 1 if one of `FOUND` is not."""
    missed = []
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=4) as pool:
        for name, count, took, what in pool.imap(_try, names or list(MUTATIONS)):
            how = f"after {count} seeds: {what[:60]}" if what else f"not in {count} seeds"
            sys.stdout.write(f"{name:38} {took:5.1f} s  {how}\n    {MUTATIONS[name].says}\n")
            sys.stdout.flush()
            if name in FOUND and not what:
                missed.append(name)
    sys.stdout.write(f"missed: {' '.join(missed) or 'none'}\n")
    return 1 if missed else 0


def _try(name: str) -> _Found:
    began = time.perf_counter()
    count, what = SEEDS_MAX, ""
    for seed in range(SEEDS_MAX):
        verdict = run_seed(seed, Settings(mutation=name))
        if not verdict.is_good:
            count, what = seed + 1, verdict.complaints[0]
            break
    return name, count, time.perf_counter() - began, what
