"""What `odin chaos` does, and says."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from odin.cli.output import chat, write_json, write_table
from odin.errors import InvalidArgumentError, UnavailableError
from odin.runtime.clock import SystemClock

from .faults.catalogue import lacking
from .faults.levers import Levers
from .faults.stage import NoClusterError, api_key_of_environment
from .halt import halt, resume
from .plan import scenario_of, worst
from .rotate import COLUMNS, rotate, rows
from .runner import Runner
from .scenarios import SCENARIOS
from .telling import told, told_line

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from .plan import Scenario, Verdict

T = TypeVar("T")
EXIT_OF: Final[dict[Verdict, int]] = {"pass": 0, "fail": 5, "unknown": 4}


def show_list(folder: Path | None, *, as_json: bool) -> int:
    """Show every experiment; return 0."""
    clock = SystemClock()
    runner = Runner(levers=Levers(folder, clock), clock=clock)
    reasons = {one.name: _unavailable(one, runner) for one in SCENARIOS}
    if as_json:
        write_json([_listed(one, reasons[one.name]) for one in SCENARIOS])
        return 0
    rows = [
        (
            str(one.number),
            one.name,
            f"{one.hold_seconds:.0f} s",
            "unavailable" if reasons[one.name] else "ready",
            "; ".join(reasons[one.name]) or one.title,
        )
        for one in SCENARIOS
    ]
    write_table(("#", "EXPERIMENT", "HOLD", "HERE", "WHAT"), rows)
    return 0


def run_one(folder: Path | None, name: str, seed: int, *, as_json: bool) -> int:
    """Run one experiment and show what came of it; return the exit code of its verdict.

    Raises:
        OdinError: it cannot be run, or not be healed.
    """
    if not name:
        raise InvalidArgumentError("which experiment? `odin chaos list` shows all")
    scenario = scenario_of(name, SCENARIOS)
    clock = SystemClock()
    runner = Runner(
        levers=Levers(folder, clock),
        clock=clock,
        api_key=api_key_of_environment(),
        tell=lambda line: None if as_json else chat(told_line(line)),
    )
    result = attended(runner.run(scenario, seed))
    if as_json:
        write_json(msgspec.to_builtins(result))
    else:
        for line in told(result, scenario):
            chat(line)
    return EXIT_OF[result.verdict]


def halt_now(folder: Path | None, *, as_json: bool) -> int:
    """End what is under way and heal everything; return 0.

    Raises:
        UnavailableError: something could not be healed; it stays on record.
    """
    clock = SystemClock()
    done, wrong = asyncio.run(halt(Levers(folder, clock), clock, api_key_of_environment()))
    if wrong:
        raise UnavailableError(f"not healed: {'; '.join(wrong)}")
    if as_json:
        write_json({"ended": done})
        return 0
    for one in done:
        chat(f"ended: {one}")
    if not done:
        chat("nothing was broken")
    return 0


def resume_now(folder: Path | None) -> int:
    """Let the schedule go on; return 0."""
    resume(Levers(folder, SystemClock()).folder)
    return 0


def rotate_all(folder: Path | None, seed: int, names: Sequence[str], *, as_json: bool) -> int:
    """Run all experiments back to back, or the named ones; return the worst one's exit code.

    Raises:
        NotFoundError: one is not known.
    """
    chosen = [scenario_of(name, SCENARIOS) for name in names] or SCENARIOS
    clock = SystemClock()
    runner = Runner(levers=Levers(folder, clock), clock=clock, api_key=api_key_of_environment())
    rotating = rotate(runner, chosen, seed, lambda one: chat(" ".join(rows([one])[0])))
    results = attended(rotating)
    if as_json:
        write_json(msgspec.to_builtins(results))
    else:
        write_table(COLUMNS, rows(results))
    judged = [one.verdict for one in results if one.experiment_id]
    return EXIT_OF[worst(judged)]


def attended(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; SIGINT and SIGTERM cancel it, so that it heals on its way out.

    Raises:
        KeyboardInterrupt: it was told to end.
    """

    async def run() -> T:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def once() -> None:  # a second signal must not cut the healing short
            if not told.is_set():
                told.set()
                task.cancel()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name="experiment")
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, once)
        if task.cancelled():
            raise KeyboardInterrupt
        return task.result()

    return asyncio.run(run())


def _unavailable(scenario: Scenario, runner: Runner) -> list[str]:
    """Return why an experiment cannot be run here; without a cluster nobody knows."""
    try:
        return lacking(scenario.needs, runner.look())
    except NoClusterError:
        return []


def _listed(one: Scenario, reasons: list[str]) -> dict[str, Any]:
    return {
        "name": one.name,
        "number": one.number,
        "title": one.title,
        "hypothesis": one.hypothesis,
        "hold_seconds": one.hold_seconds,
        "available": not reasons,
        "reasons": reasons,
        "needs": sorted(one.needs),
    }
