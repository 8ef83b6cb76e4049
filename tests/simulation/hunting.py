"""Many seeds over several processes, and one seed told in full."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing.pool import AsyncResult
from typing import Final

from tests.simulation import faults
from tests.simulation.focused import ALL_KINDS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import Shape, Verdict, World

TOLD_MAX: Final = 60
MUTANT_SECONDS: Final = 60.0
_PROGRESS_SECONDS: Final = 2.0
_SEEDS_OF_A_PROCESS: Final = 400
_AHEAD: Final = 8  # a seed that takes long must not keep the other processes waiting


@dataclass(frozen=True, slots=True)
class Settings:
    """What a seed is run with.

    Args:
        kinds: Names of faults to draw from; all if None.
        mutation: The name of a mutation; "" for odin as it is.
        is_calm: Without faults.
    """

    kinds: list[str] | None = None
    mutation: str = ""
    is_calm: bool = False


def shape_of(seed: int) -> Shape:
    """Return the size of a seed's world: most are small, some are wider."""
    return Shape(
        workers=2 + seed % 2,
        orders=(14, 9, 6)[seed % 3],
        lanes=1 + (seed % 5 == 0),
        cached_workflows=(100, 100, 2, 0)[seed % 4],
        drift=0.02 if seed % 7 == 0 else 0.001,
    )


def run_seed(seed: int, settings: Settings = Settings()) -> Verdict:
    """Live one seed's world through, and collect it at once.

    A collector that begins by itself begins while the world is still held: it looks through all of
    it in vain, and the next ten seeds use memory that has not been used lately.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _live(seed, settings)
    finally:
        gc.collect(0)
        if collects:
            gc.enable()


def _live(seed: int, settings: Settings) -> Verdict:
    mutation = MUTATIONS[settings.mutation] if settings.mutation else None
    kinds = settings.kinds or (mutation.kinds if mutation else None)
    with mutation.broken() if mutation else nullcontext():
        shape = shape_of(seed)
        if mutation:  # what hangs need not hang for minutes
            shape = replace(shape, **{"finish_seconds": MUTANT_SECONDS, **mutation.shape})
        world = World(seed, shape)
        if settings.is_calm:
            return world.run()
        return world.run(lambda one: faults.plan(one, kinds, ALL_KINDS))


def warm_up() -> None:
    """Have what a first seed does once done, and kept out of the collector's way, before a fork."""
    World(0).run()
    gc.collect()
    gc.freeze()


def tell(seed: int, settings: Settings = Settings()) -> bool:
    """Run one seed and print what happened; return whether all was well."""
    began = time.perf_counter()
    verdict = run_seed(seed, settings)
    took = time.perf_counter() - began
    _say(*(f"  {line}" for line in verdict.happenings[-TOLD_MAX:]))
    _say(f"seed {seed}, faults:", *(f"  {name}" for name in verdict.faults))
    _say(
        f"{verdict.seconds:.1f} virtual seconds, {verdict.steps} steps in {took:.2f} s,"
        f" trace {verdict.trace:08x}"
    )
    _say(*(f"WRONG {one}" for one in verdict.complaints) if verdict.complaints else ["all is well"])
    return verdict.is_good


def hunt(seeds: Iterable[int], settings: Settings, jobs: int, seconds: float | None = None) -> int:
    """Run many seeds; return 1 and name those at which something is wrong, 0 if there are none."""
    began = time.monotonic()
    shown, cpu_before = began, _cpu_seconds()
    count, virtual = 0, 0.0
    bad: list[Verdict] = []
    for verdict in verdicts(seeds, settings, jobs, seconds):
        count += 1
        virtual += verdict.seconds
        if not verdict.is_good:
            bad.append(verdict)
        now = time.monotonic()
        if now - shown > _PROGRESS_SECONDS:
            shown = now
            _say(_line(count, virtual, now - began, len(bad)))
    took = time.monotonic() - began
    cpu_ms = 1_000 * (_cpu_seconds() - cpu_before) / max(count, 1)
    _say(_line(count, virtual, took, len(bad)) + f", {cpu_ms:.0f} ms of CPU a seed")
    for verdict in bad[:20]:
        _say(f"seed {verdict.seed}: {verdict.complaints[0][:300]}")
    if bad:
        _say(f"failing seeds: {' '.join(str(one.seed) for one in bad)}")
        _say(f"replay one: python -m tests.simulation --seed {bad[0].seed}")
    return 1 if bad else 0


def verdicts(
    seeds: Iterable[int], settings: Settings, jobs: int, seconds: float | None = None
) -> Iterator[Verdict]:
    """Yield the verdict of each seed as it comes, until the time is up."""
    ends = None if seconds is None else time.monotonic() + seconds
    context = multiprocessing.get_context("fork")
    waiting: deque[AsyncResult[Verdict]] = deque()
    warm_up()
    # Processes are replaced now and then, should a world leave anything behind for good.
    with context.Pool(jobs, maxtasksperchild=_SEEDS_OF_A_PROCESS) as pool:
        for seed in seeds:
            if ends is not None and time.monotonic() > ends:
                break
            waiting.append(pool.apply_async(_run, ((seed, settings),)))
            while len(waiting) >= _AHEAD * jobs:
                yield waiting.popleft().get()
        while waiting:
            yield waiting.popleft().get()
        pool.close()  # else its processes are killed, and nobody learns what they have used
        pool.join()


def seeds_until_found(mutation: str, jobs: int, seeds: range) -> tuple[int, Verdict] | None:
    """Return how many seeds it took to find a mutation, and what was seen; None if it was not."""
    for count, verdict in enumerate(verdicts(seeds, Settings(mutation=mutation), jobs), 1):
        if not verdict.is_good:
            return count, verdict
    return None


def _run(job: tuple[int, Settings]) -> Verdict:
    verdict = run_seed(*job)
    if verdict.is_good:
        verdict.happenings.clear()
    return verdict


def _line(count: int, virtual: float, took: float, bad: int) -> str:
    rate = count / took if took else 0.0
    return (
        f"{count} seeds in {took:.1f} s ({rate:.1f} a second), {virtual / 3600:.2f} virtual hours,"
        f" {bad} failing"
    )


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}{os.linesep}" for line in lines))
    sys.stdout.flush()
