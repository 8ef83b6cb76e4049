"""A cluster that outlives the command that started it, and the end of one by its state file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from odin.errors import UnavailableError
from odin.runtime.clock import SystemClock
from odin.runtime.services import environment_of, module_of

from .identity import end_recorded, is_same
from .state import ClusterState, read_state, write_state

if TYPE_CHECKING:
    from pathlib import Path

    from odin.runtime.clock import Clock

    from .options import Options
    from .place import Place

# The servers may have to be installed first.
START_SECONDS: Final = 900.0
STOP_SECONDS: Final = 15.0
LEFTOVER_SECONDS: Final = 4.0
POLL_SECONDS: Final = 0.1


def start(options: Options, place: Place) -> int:
    """Start a supervisor of its own session and return when its cluster runs.

    Raises:
        ClusterRunsError: one runs in this folder already.
        UnavailableError: it did not get to run in time.
    """
    with place.owned():
        pass  # free at this moment, or a clear error here; the supervisor takes it for good
    log_path = place.log_of("cluster")
    command = [sys.executable, "-P", "-m", module_of("cluster"), *_arguments(options, place)]
    seen = log_path.stat().st_size if log_path.exists() else 0
    with log_path.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own module and checked numbers
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment_of(dict(os.environ)),
            start_new_session=True,
        )
    return asyncio.run(_until_running(process, place, log_path, seen))


def stop(place: Place) -> int:
    """Stop the supervisor of the place, then what is left of its cluster; return the exit code."""
    state = read_state(place)
    if state is None or not (state.is_supervised or any(one.is_alive for one in state.parts)):
        sys.stderr.write(f"no cluster runs in {place.folder}\n")
        return 0
    return asyncio.run(_stop(place, state))


async def _until_running(
    process: subprocess.Popen[bytes], place: Place, log_path: Path, seen: int
) -> int:
    clock = SystemClock()
    until = clock.boottime() + START_SECONDS
    while clock.boottime() < until:
        seen = _pass_on(log_path, seen)
        if process.poll() is not None:
            sys.stderr.write(f"the cluster has ended: see {log_path}\n")
            return process.returncode or 1
        state = read_state(place)
        if state is not None and state.pid == process.pid and state.phase == "running":
            sys.stdout.write(
                f"running in the background (pid {process.pid}): {', '.join(state.engines)}\n"
                "`odin ps` shows it, `odin logs -f` follows it, `odin down` stops it\n"
            )
            return 0
        await clock.sleep(POLL_SECONDS)
    process.send_signal(signal.SIGTERM)
    raise UnavailableError(f"the cluster did not start in {START_SECONDS:.0f} s: see {log_path}")


def _pass_on(log_path: Path, seen: int) -> int:
    """Show what the supervisor has said since; return how far that is."""
    with log_path.open("rb") as file:
        file.seek(seen)
        text = file.read()
    sys.stderr.write(text.decode(errors="replace"))
    return seen + len(text)


async def _stop(place: Place, state: ClusterState) -> int:
    clock = SystemClock()
    await _thaw(place, clock)
    supervisor = (state.pid, state.fingerprint)
    if state.is_supervised:
        os.kill(state.pid, signal.SIGTERM)
        until = clock.boottime() + STOP_SECONDS
        while is_same(*supervisor) and clock.boottime() < until:
            await clock.sleep(POLL_SECONDS)
    # Killed before, or stuck: the kernel ends the parts with it, and this whatever is left.
    await end_recorded([supervisor], clock, 0.0)
    last = read_state(place) or state
    left = [(one.pid, one.fingerprint) for one in last.parts if one.pid is not None]
    ended = await end_recorded(left, clock, LEFTOVER_SECONDS)
    if ended:
        sys.stderr.write(f"ended {len(ended)} processes that were left behind\n")
        last.phase = "stopped"
        for one in last.parts:
            one.phase, one.pid, one.fingerprint = "stopped", None, ""
        write_state(place, last)
    sys.stderr.write("stopped\n")
    return 0


async def _thaw(place: Place, clock: Clock) -> None:
    """Let go on what was frozen on purpose: it could not end in order."""
    from .breaking import Breaker  # noqa: PLC0415 - with all of its imports, needed here alone

    await Breaker(place, clock).heal(lambda one: one.kind == "frozen")


def _arguments(options: Options, place: Place) -> list[str]:
    return [
        "up",
        *("--engines", str(options.engines)),
        *("--workers", str(options.workers)),
        *("--load", str(options.load_rate)),
        "--mocks" if options.mocks else "--no-mocks",
        *(["--proxies"] if options.proxies else []),
        *("--folder", str(place.folder)),
    ]
