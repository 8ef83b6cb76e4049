"""I18: histories are replayed by a fresh process whose hashes are salted anew."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from odin.errors import OdinError
from odin.proof.findings import Finding
from odin.runtime.services import environment_of, module_of

from .invariants.tally import unjudged

if TYPE_CHECKING:
    from collections.abc import Callable

    from .snapshot import Window

REPLAY_SECONDS: Final = 120.0
_ERROR_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Replay:
    """Which histories to replay.

    Attributes:
        modules: The modules that hold the workflows; empty: those of the demo.
        runs_max: At most so many, chosen by lot.
        events_max: Longer histories are left out.
        seed: Of the lot, and of the salt.
    """

    modules: tuple[str, ...] = ()
    runs_max: int = 200
    events_max: int = 5_000
    seed: int = 0


class Order(msgspec.Struct, frozen=True):
    """What the process is told on its standard input; the database is in its environment."""

    modules: tuple[str, ...]
    since_us: int
    until_us: int
    runs_max: int
    events_max: int
    seed: int


def demo_modules() -> tuple[str, ...]:
    """Return the modules of the demo's workflows, wherever they are installed.

    Raises:
        ConfigurationError: This installation lacks them.
    """
    worker = module_of("worker")
    return (f"{worker}.orders", f"{worker}.subscription", f"{worker}.bench")


async def replayed(
    dsn: str, replay: Replay | None, window: Window, tell: Callable[[str], None]
) -> Finding:
    """Return I18; never raises.

    Args:
        dsn: The database.
        replay: Which histories; None: none, and so nothing is known.
        window: Whose runs.
        tell: Told of progress.
    """
    if replay is None:
        return unjudged("I18", "nothing was replayed: it was not asked for")
    try:
        order = Order(
            replay.modules or demo_modules(),
            window.since_us,
            window.until_us,
            replay.runs_max,
            replay.events_max,
            replay.seed,
        )
        tell(f"replaying up to {replay.runs_max} histories in a process of their own")
        return await _run(dsn, order)
    except (OSError, OdinError, TimeoutError, msgspec.MsgspecError) as error:
        return unjudged("I18", f"the replay failed: {type(error).__name__}: {error}")


async def _run(dsn: str, order: Order) -> Finding:
    environ = environment_of(dict(os.environ))
    environ |= {"ODIN_POSTGRES_DSN": dsn, "PYTHONHASHSEED": str(order.seed % 2**32)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"{__package__}.replay"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            told, errors = await process.communicate(msgspec.json.encode(order))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        shown = errors.decode(errors="replace").strip()[-_ERROR_SHOWN:]
        return unjudged("I18", f"the replay ended with {process.returncode}: {shown}")
    return msgspec.json.decode(told, type=Finding)
