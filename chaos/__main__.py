"""`python -m chaos`: one experiment every ten minutes on the cluster of ODIN_FOLDER.

`odin chaos` runs single ones, and shows and halts what this does.
"""

from __future__ import annotations

import argparse
import secrets
from datetime import timedelta
from typing import Final

from odin.runtime.clock import SystemClock
from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .faults.levers import Levers
from .plan import Timing
from .runner import Runner
from .schedule import Schedule
from .settings import ChaosSettings

# Healing takes a moment, and nothing is more important on the way out.
DRAIN_TIMEOUT: Final = timedelta(seconds=10)
SEED_BITS: Final = 31


async def main() -> None:
    """Run the schedule until told to stop.

    Raises:
        ConfigurationError: a setting is missing or wrong.
    """
    settings = load(ChaosSettings)
    clock = SystemClock()
    runner = Runner(
        levers=Levers(settings.folder, clock),
        clock=clock,
        api_key=settings.api_token.get_secret_value() if settings.api_token else None,
    )
    await runner.clean_up()
    schedule = Schedule(
        runner=runner,
        timing=Timing(settings.chaos_every, settings.chaos_verdict_after, settings.chaos_first),
        seed=secrets.randbits(SEED_BITS) if settings.chaos_seed is None else settings.chaos_seed,
        load_seconds=settings.demo_seconds,
    )
    await serve({"schedule": schedule}, DRAIN_TIMEOUT)


if __name__ == "__main__":
    # It has no options; whoever asks for help, or means `odin chaos`, is told and breaks nothing.
    argparse.ArgumentParser(prog="python -m chaos", description=__doc__).parse_args()
    run(main, service="chaos")
