"""What `odin chaos` does, and says."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from odin.cli.output import chat, write_json, write_table
from odin.errors import InvalidArgumentError, UnavailableError
from odin.runtime.clock import SystemClock

from .compose import COMPOSE_SCENARIOS, refusals
from .faults.compose_levers import NotInContainersError
from .faults.stage import NoClusterError, api_key_of_environment
from .halt import halt, resume
from .plan import scenario_of, worst
from .reaching import Where, levers_of, runner_of, unhealed
from .rotate import COLUMNS, rotate, rows
from .scenarios import SCENARIOS
from .settled import judge_all
from .telling import told, told_line

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from .plan import Scenario, Verdict
    from .result import Result
    from .runner import Runner

T = TypeVar("T")
EXIT_OF: Final[dict[Verdict, int]] = {"pass": 0, "fail": 5, "unknown": 4}


def show_list(where: Where, *, as_json: bool) -> int:
    """Show every experiment; return 0."""
    runner = runner_of(where)
    scenarios = sorted(runner.kit.scenarios, key=lambda one: one.number)
    reasons = {one.name: _unavailable(one, runner) for one in scenarios}
    if as_json:
        write_json([_listed(one, reasons[one.name]) for one in scenarios])
        return 0
    rows = [
        (
            str(one.number),
            one.name,
            f"{one.hold_seconds:.0f} s",
            "unavailable" if reasons[one.name] else "ready",
            "; ".join(reasons[one.name]) or one.title,
        )
        for one in scenarios
    ]
    write_table(("#", "EXPERIMENT", "HOLD", "HERE", "WHAT"), rows)
    return 0


def run_one(where: Where, name: str, seed: int, *, as_json: bool) -> int:
    """Run one experiment and show what came of it; return the exit code of its verdict.

    Raises:
        OdinError: it cannot be run, or not be healed.
    """
    if not name:
        raise InvalidArgumentError("which experiment? `odin chaos list` shows all")
    [scenario] = _chosen(where, [name])
    runner = runner_of(where, lambda line: None if as_json else chat(told_line(line)))
    result = attended(runner.run(scenario, seed))
    if as_json:
        write_json(msgspec.to_builtins(result))
    else:
        for line in told(result, scenario):
            chat(line)
    return EXIT_OF[result.verdict]


def halt_now(where: Where, *, as_json: bool) -> int:
    """End what is under way and heal everything; return 0.

    Raises:
        UnavailableError: something could not be healed; it stays on record.
    """
    clock, api_key = SystemClock(), api_key_of_environment()
    done, wrong = asyncio.run(halt(levers_of(where), clock, api_key))
    if where.project is None:  # whoever says only "halt" means everything below that folder
        for levers in unhealed(where):
            more, left = asyncio.run(halt(levers, clock, api_key))
            done, wrong = done + more, wrong + left
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


def resume_now(where: Where) -> int:
    """Let the schedule go on; return 0."""
    resume(levers_of(where).folder)
    return 0


def rotate_all(where: Where, seed: int, names: Sequence[str], *, as_json: bool) -> int:
    """Run all experiments back to back, or the named ones; return the worst one's exit code.

    Raises:
        NotFoundError: one is not known.
    """
    chosen = _chosen(where, names)
    runner = runner_of(where)
    results = attended(_rotated(runner, chosen, seed, is_judged=where.project is None))
    if as_json:
        write_json(msgspec.to_builtins(results))
    else:
        write_table(COLUMNS, rows(results))
    judged = [one.verdict for one in results if one.experiment_id]
    return EXIT_OF[worst(judged)]


async def _rotated(
    runner: Runner, chosen: Sequence[Scenario], seed: int, *, is_judged: bool
) -> list[Result]:
    results = await rotate(runner, chosen, seed, lambda one: chat(" ".join(rows([one])[0])))
    if is_judged:  # in containers no client copies what it saw to where the checker reads it
        await judge_all(runner, results, chat)
    return results


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
        return runner.kit.lacking(scenario, runner.look())
    except NoClusterError:
        return []


def _chosen(where: Where, names: Sequence[str]) -> list[Scenario]:
    """Return the named experiments; of none, all that can be run in that kind of cluster.

    Raises:
        NotFoundError: one is not known.
        NotInContainersError: containers lack the levers for a named one.
    """
    if where.project is None:
        return [scenario_of(name, SCENARIOS) for name in names] or [*SCENARIOS]
    chosen = [scenario_of(name, COMPOSE_SCENARIOS) for name in names]
    for one in chosen:
        if why := refusals(one):
            raise NotInContainersError(f"{one.name} cannot be run in containers: {'; '.join(why)}")
    return chosen or [one for one in COMPOSE_SCENARIOS if not refusals(one)]


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
