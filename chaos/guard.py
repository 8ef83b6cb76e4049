"""`python -m chaos.guard`: heals a compose project whose runner has died, or takes too long.

The runner starts it before it breaks anything. It does nothing, and ends, as soon as the record of
what is under way is gone; the runner has healed then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odin.errors import OdinError
from odin.runtime.clock import SystemClock

from .faults.compose_levers import ComposeLevers
from .faults.docker import Docker
from .faults.docker_address import address_of
from .faults.stage import api_key_of_environment
from .healing import replayed
from .journal import Journal
from .running import exclusive, read_running

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

LOOK_SECONDS: Final = 0.5
# While an engine of containers is away, nothing can be healed; the next start or halt will.
AGAIN_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 3_600.0


async def guarded(
    levers: ComposeLevers, clock: Clock, runner: tuple[int, str], seconds: float
) -> list[str]:
    """Wait until nothing is on record; undo it if its runner is gone, or after so many seconds.

    Args:
        levers: The project.
        clock: Measures.
        runner: The runner's pid, and what tells it from a later process.
        seconds: How long the runner may take.

    Returns:
        What was undone: the id of the experiment, or nothing.
    """
    ends, said = clock.boottime() + seconds, list[str]()
    while (running := read_running(levers.folder)) is not None and running.pid == runner[0]:
        is_gone = not levers.is_same(*runner)
        is_late = clock.boottime() >= ends
        if clock.boottime() >= ends + GIVE_UP_SECONDS:
            break
        if is_gone or is_late:
            with suppress(OdinError):  # whoever has the lock heals; what fails is tried again
                # A runner that is stuck holds the lock; one that is gone holds none.
                with exclusive(levers.folder) if is_gone else nullcontext():
                    wrong = await _undone(levers)
                if wrong != said or not wrong:  # told once, however often it is tried
                    journal = Journal(levers.folder, running.experiment_id, running.scenario, clock)
                    journal.write("halted", why="its guard found it gone or late", wrong=wrong)
                if not wrong:
                    return [running.experiment_id]
                said = wrong
                await clock.sleep(AGAIN_SECONDS)
        await clock.sleep(LOOK_SECONDS)
    return []


async def _undone(levers: ComposeLevers) -> list[str]:
    return await replayed(levers, api_key_of_environment())


def main() -> None:
    """Read the words of the runner, and guard."""
    parser = argparse.ArgumentParser(prog="python -m chaos.guard", description=__doc__)
    parser.add_argument("--project", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--pid", required=True, type=int)
    parser.add_argument("--mark", required=True)
    parser.add_argument("--seconds", required=True, type=float)
    given = parser.parse_args()
    levers = ComposeLevers(Docker(address_of(os.environ)), given.project, given.folder)
    asyncio.run(guarded(levers, SystemClock(), (given.pid, given.mark), given.seconds))


if __name__ == "__main__":
    main()
