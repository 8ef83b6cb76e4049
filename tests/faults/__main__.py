"""`python -m tests.faults [NAME…] [--alone]`: breaks a cluster in every way and prints a table."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .bed import HEADER, Bed, Told, bed, say
from .scenarios import IN_STEPS, SCENARIOS

SCENARIO_SECONDS = 240.0


async def _play(place: Bed, name: str) -> Told:
    try:
        async with asyncio.timeout(SCENARIO_SECONDS):
            return await place.play(name, SCENARIOS[name])
    except Exception as error:  # noqa: BLE001 - whatever it is, the table says it and goes on
        place.told.wrong += [f"{type(one).__name__}: {one}" for one in _leaves(error)]
        return place.told


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


async def _all(names: list[str], folder: Path, *, is_alone: bool) -> list[Told]:
    results: list[Told] = []
    together = [name for name in names if name != IN_STEPS]
    groups = (
        [[name] for name in names] if is_alone else [together, [IN_STEPS] * (IN_STEPS in names)]
    )
    say(HEADER)
    for number, group in enumerate(filter(None, groups)):
        async with bed(folder / str(number), in_steps=IN_STEPS in group) as place:
            for name in group:
                told = await _play(place, name)
                results.append(told)
                say(told.line())
                for wrong in told.wrong:
                    say(f"    {wrong}")
    return results


def main() -> int:
    """Run the named scenarios, all if none is named; return 0 if all hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], metavar="NAME")
    parser.add_argument("--alone", action="store_true", help="a fresh cluster for each")
    parser.add_argument("--folder", type=Path, help="keep the clusters' files here")
    given = parser.parse_args()
    names = given.names or list(SCENARIOS)
    with tempfile.TemporaryDirectory(prefix="odin-faults-") as temporary:
        folder = given.folder or Path(temporary)
        results = asyncio.run(_all(names, folder, is_alone=given.alone))
    failed = [one.name for one in results if one.wrong]
    say(
        f"{len(results) - len(failed)} of {len(results)} hold"
        + (f"; failed: {failed}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
