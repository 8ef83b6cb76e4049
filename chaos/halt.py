"""Ends whatever experiment is under way, heals everything, and keeps the schedule from going on."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .healing import replayed
from .running import exclusive, read_running

if TYPE_CHECKING:
    from pathlib import Path

    from odin.runtime.clock import Clock

    from .faults.levers import Reach
    from .running import Running

# The runner heals by itself when it is told to end; below, we do.
ENDS_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.1
FILE: Final = "chaos-halted"


def is_halted(folder: Path) -> bool:
    """Return whether the schedule of a cluster was told to begin nothing."""
    return (folder / FILE).exists()


def resume(folder: Path) -> None:
    """Let the schedule go on."""
    (folder / FILE).unlink(missing_ok=True)


async def halt(levers: Reach, clock: Clock, api_key: str | None) -> tuple[list[str], list[str]]:
    """Tell the runner to end, undo what it leaves, heal the rest.

    Returns:
        What was ended or healed, and what could not be.
    """
    done: list[str] = []
    running = read_running(levers.folder)
    if running is not None:
        done.append(f"experiment {running.experiment_id}")
        if levers.is_same(running.pid, running.fingerprint) and running.pid != os.getpid():
            await _end(running, levers, clock)
    (levers.folder / FILE).touch()
    with exclusive(levers.folder):
        wrong = await replayed(levers, api_key)
        healed = await levers.breaker.heal()
    return done + [one.what for one in healed if one.kind != "once"], wrong


async def _end(running: Running, levers: Reach, clock: Clock) -> None:
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    ends = clock.boottime() + ENDS_SECONDS
    while levers.is_same(running.pid, running.fingerprint) and clock.boottime() < ends:
        await clock.sleep(POLL_SECONDS)
    if levers.is_same(running.pid, running.fingerprint):
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
        while levers.is_same(running.pid, running.fingerprint):
            await clock.sleep(POLL_SECONDS)
