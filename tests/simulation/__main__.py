"""Run the simulation: `python -m tests.simulation --seed 7`, or many seeds on every core.

--seed N        one seed, told in full; the same seed gives the same trace hash, always
--seeds A:B     seeds A to B - 1 over all cores
--minutes M     seeds from a random one on (or from --from), until the time is up
--kinds K ...   only these faults
--mutate NAME   with a mutation of odin's code in place
--mutations N.. these mutations (all of them), each from seed 0 on until it is found
--calm          without faults
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.hunting import Settings, hunt, tell
from tests.simulation.survey import survey


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--kinds", nargs="*", default=None)
    parser.add_argument("--mutate", default="")
    parser.add_argument("--mutations", nargs="*", default=None)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def main() -> int:
    """Return 1 if a seed was found at which something is wrong."""
    given = _arguments()
    if given.mutations is not None:
        return survey(given.mutations, given.jobs)
    settings = Settings(given.kinds, given.mutate, is_calm=given.calm)
    if given.seed is not None:
        return 0 if tell(given.seed, settings) else 1
    if given.seeds:
        first, _, last = given.seeds.partition(":")
        return hunt(range(int(first), int(last)), settings, given.jobs)
    seeds = range(given.first, given.first + 10_000_000)
    return hunt(seeds, settings, given.jobs, seconds=(given.minutes or 1.0) * 60)


if __name__ == "__main__":
    sys.exit(main())
