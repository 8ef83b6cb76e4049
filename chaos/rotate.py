"""All experiments one after the other, and the table of what they came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.errors import OdinError

from .halt import halt
from .plan import rotation
from .result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .plan import Scenario
    from .runner import Runner

COLUMNS: Final = ("EXPERIMENT", "BIT", "RECOVERED", "STALL", "STARTS", "CHECKER", "VERDICT", "WHY")
WHY_MAX: Final = 110


async def rotate(
    runner: Runner, scenarios: Sequence[Scenario], seed: int, tell: Callable[[Result], None]
) -> list[Result]:
    """Run every experiment once, back to back, in the order of the seed.

    Ends early, with everything healed, if the cluster does not become steady again: what came
    after would show nothing.

    Args:
        runner: Runs them.
        scenarios: What to run.
        seed: Of the order and of the victims.
        tell: Is told each result.
    """
    results: list[Result] = []
    for scenario in rotation(seed, 0, scenarios):
        result = await _one(runner, scenario, seed)
        results.append(result)
        tell(result)
        if is_lost(result):
            await halt(runner.levers, runner.clock, runner.api_key)
            break
    return results


async def _one(runner: Runner, scenario: Scenario, seed: int) -> Result:
    try:
        return await runner.run(scenario, seed)
    except OdinError as error:
        now = runner.clock.wall().isoformat(timespec="milliseconds")
        return Result(
            experiment_id="",
            scenario=scenario.name,
            seed=seed,
            started_at=now,
            ended_at=now,
            reasons=[str(error)],
        )


def is_lost(result: Result) -> bool:
    """Return whether the cluster did not come back from an experiment."""
    return result.is_steady_before and bool(result.bites) and result.recovered_seconds is None


def rows(results: Iterable[Result]) -> list[tuple[str, ...]]:
    """Return the table's rows."""
    return [
        (
            one.scenario,
            "yes" if one.has_bitten else "NO" if one.bites else "-",
            "-" if one.recovered_seconds is None else f"{one.recovered_seconds:.1f} s",
            f"{one.counts['longest stall']:.1f} s" if one.counts else "-",
            f"{one.counts['finished']}/{one.counts['started']}" if one.counts else "-",
            one.checker or "-",
            one.verdict,
            "; ".join([*one.wrong, *one.reasons, *_unseen(one)])[:WHY_MAX] or "-",
        )
        for one in results
    ]


def _unseen(result: Result) -> list[str]:
    found = {**result.bites, **result.seen}
    unseen = [f"not seen: {name}" for name, is_seen in found.items() if not is_seen]
    return unseen + [f"does not hold: {one}" for one, holds in result.claims.items() if not holds]
