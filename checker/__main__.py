"""`python -m checker`: one pass as `odin check` makes it, a pass every so often, or a self-test."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from odin.cli.output import chat, write_table
from odin.errors import OdinError
from odin.runtime.clock import SystemClock, pause
from odin.runtime.log import setup_logging
from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .commands import asked_of, checked, instant_us
from .passes import SECOND_US
from .selftest import self_test
from .settings import CheckerSettings
from .showing import EXIT_CODES, show

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

DRAIN_TIMEOUT: Final = timedelta(seconds=3)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The loop that makes a pass every so often; a pass that fails is tried again the next time.

    Attributes:
        settings: Where the database is, and how it is judged.
        clock: Paces the passes.
        every_seconds: From the end of one pass to the next.
        since: How far back each pass looks, as `odin check --since` takes it.
        experiment: As `odin check --experiment` takes it.
    """

    settings: CheckerSettings
    clock: Clock
    every_seconds: float
    since: str
    experiment: str | None

    async def __call__(self, stop: asyncio.Event) -> None:
        """Make passes until told to stop."""
        while not stop.is_set():
            try:
                await self._pass()
            except OdinError as error:
                log.warning("the pass failed", extra={"detail": str(error)})
            if await pause(self.clock, stop, self.every_seconds):
                return

    async def _pass(self) -> None:
        now_us = round(self.clock.wall().timestamp() * SECOND_US)
        since_us = instant_us(self.since, now_us, "--since")
        asked = asked_of(self.settings, since_us=since_us, experiment=self.experiment, seed=now_us)
        report = await checked(self.settings.dsn, asked, tell=log.info)
        not_valid = {
            one.invariant: f"{one.verdict}: {one.words}"
            for one in report.findings
            if one.verdict != "valid"
        }
        log.info("judged", extra={"verdict": report.verdict, **not_valid})


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m checker", description=__doc__)
    parser.add_argument("--since", default="1h", help="how far back: 30m, 1h; or an instant")
    parser.add_argument("--until", default="", help="where to end; now if absent")
    parser.add_argument("--experiment", default="", help="judge whether its faults took effect")
    parser.add_argument("--every", type=float, help="go on, with so many seconds between passes")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="spoil a copy of the rows and see each rule say no",
    )
    return parser.parse_args(arguments)


async def _once(settings: CheckerSettings, given: argparse.Namespace) -> int:
    now_us = round(SystemClock().wall().timestamp() * SECOND_US)
    asked = asked_of(
        settings,
        since_us=instant_us(given.since, now_us, "--since"),
        until_us=instant_us(given.until, now_us, "--until") if given.until else None,
        experiment=given.experiment or None,
        seed=now_us,
    )
    return show(await checked(settings.dsn, asked, tell=chat), as_json=given.json)


async def _tested(settings: CheckerSettings, given: argparse.Namespace) -> int:
    now_us = round(SystemClock().wall().timestamp() * SECOND_US)
    results = await self_test(settings.dsn, instant_us(given.since, now_us, "--since"))
    rows = [(one.mutation, one.invariant, one.outcome, one.words) for one in results]
    write_table(("MUTATION", "INVARIANT", "OUTCOME", "WORDS"), rows)
    if any(one.outcome == "missed" for one in results):
        return EXIT_CODES["invalid"]
    return EXIT_CODES["valid" if all(one.outcome == "seen" for one in results) else "unknown"]


async def _rounds(given: argparse.Namespace) -> None:
    settings, clock = load(CheckerSettings), SystemClock()
    rounds = Rounds(settings, clock, given.every, given.since, given.experiment or None)
    await serve({"checker": rounds}, DRAIN_TIMEOUT)


def main() -> None:
    """Start the process."""
    given = _options(sys.argv[1:])
    if given.every is not None:
        run(partial(_rounds, given), service="checker")
    setup_logging("checker", level="warning")
    work = partial(_tested if given.self_test else _once, load(CheckerSettings), given)
    try:
        sys.exit(asyncio.run(work()))
    except OdinError as error:
        chat(f"error: {error}")
        sys.exit(EXIT_CODES["unknown"])


if __name__ == "__main__":
    main()
