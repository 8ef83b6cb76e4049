"""`make compose-chaos`: experiments on compose.yaml by the Docker API, as podman speaks it.

Everything is as in the smoke test, and cleaned up like it; in place of its acts, the system is
broken by `odin chaos run NAME --compose`, each time with a verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from .__main__ import (
    FOLDER,
    PROJECT,
    ROOT,
    Steps,
    base_environ,
    build,
    clean,
    compose_command,
    prepare,
    say,
)
from .podman import Podman, settings_files
from .running import Runner, SmokeError
from .setting import Setting, make_setting
from .trial import Trial

# Those that show each lever of the API once, the hardest last.
NAMES: Final = (
    "kill-engine-node",
    "pause-engine-node",
    "cut-engine-node",
    "valkey-down",
    "broker-down",
    "rolling-deploy",
    "postgres-restart",
)
STARTING: Final = 4
SERVICE_SECONDS: Final = 20.0
EXPERIMENT_SECONDS: Final = 300.0
WHOLE_SECONDS: Final = 1_500.0
_CHAOS: Final = (sys.executable, "-P", "-m", "odin.cli", "chaos")


@contextlib.asynccontextmanager
async def api(runner: Runner, socket: Path) -> AsyncIterator[str]:
    """Let podman serve the Docker API at a socket for the length of the block; yield its address.

    Raises:
        SmokeError: it does not begin to listen in time.
    """
    address = f"unix://{socket}"
    process = await asyncio.create_subprocess_exec(
        *("podman", "system", "service", "--time=0", address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=runner.environ,
    )
    try:
        try:
            async with asyncio.timeout(SERVICE_SECONDS):
                while not await _listens(socket):  # noqa: ASYNC110 - podman tells no event
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise SmokeError(f"podman does not listen at {address}") from None
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _listens(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.transport.abort()
    return True


async def chaos(runner: Runner, address: str, folder: Path, *words: str) -> dict[str, Any]:
    """Run `odin chaos` on the project; return what it says.

    Raises:
        SmokeError: it says nothing that is understood.
    """
    ended = await runner.attempt(
        *(*_CHAOS, *words, "--project", PROJECT, "--folder", str(folder), "--json"),
        seconds=EXPERIMENT_SECONDS,
        extra={"DOCKER_HOST": address},
    )
    try:
        found: dict[str, Any] = json.loads(ended.output)
    except ValueError:
        said = ended.output[-2_000:]
        raise SmokeError(f"{' '.join(words)} ended with {ended.code}\n{said}") from None
    return found


def passed(found: dict[str, Any]) -> list[str]:
    """Return what an experiment came to.

    Raises:
        SmokeError: its verdict is not pass.
    """
    counts = found["counts"]
    if found["verdict"] != "pass" or not counts:
        raise SmokeError(
            f"{found['scenario']}: {found['verdict']}, bit {found['bites']}, seen {found['seen']}, "
            f"{found['wrong']} {found['reasons']}"
        )
    return [
        f"pass, struck {'; '.join(found['targets'])}",
        f"seen: {', '.join([*found['bites'], *found['seen']])}",
        f"{counts['finished']} of {counts['started']} starts finished",
        f"stall {counts['longest stall']} s",
        f"recovered {found['recovered_seconds']} s",
    ]


async def break_all(
    runner: Runner, steps: Steps, folder: Path, names: Sequence[str], seed: int
) -> None:
    """Run each experiment, then the first one again from its record.

    Raises:
        SmokeError: one did not pass, or what was run again struck somebody else.
    """
    first: dict[str, Any] = {}
    async with api(runner, folder / "docker.sock") as address:
        for name in names:
            async with steps.step(name) as facts:
                found = await chaos(runner, address, folder, "run", name, "--seed", str(seed))
                facts.extend(passed(found))
                first = first or found
        async with steps.step(f"replay of {first['experiment_id']}") as facts:
            both = await chaos(runner, address, folder, "replay", first["experiment_id"])
            again = both["replay"]
            if (again["targets"], again["draw"]) != (first["targets"], first["draw"]):
                raise SmokeError(f"not the same: {first['draw']}, then {again['draw']}")
            facts.extend(passed(again))


async def break_it(
    runner: Runner, podman: Podman, setting: Setting, steps: Steps, names: Sequence[str], seed: int
) -> None:
    """Start the system, break it in each of these ways, and take it down.

    Raises:
        SmokeError: something did not go as it must.
    """
    trial = Trial(podman, setting)
    # Not below the checkout: a socket's path is short. Nobody else may enter the folder.
    with tempfile.TemporaryDirectory(prefix="odin-chaos-") as scratch:
        folder = Path(scratch)
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                await prepare(runner, steps)
                await podman.remove_everything()
                await build(podman, steps)
                for act_name, act in trial.acts()[:STARTING]:
                    async with steps.step(act_name) as facts:
                        facts.extend(await act())
                await break_all(runner, steps, folder, names, seed)
        except TimeoutError:
            raise SmokeError(f"not done after {WHOLE_SECONDS:.0f} s") from None
        except SmokeError:
            with contextlib.suppress(SmokeError):
                await trial.keep_logs()
            raise
        finally:
            await clean(podman, steps)


async def main(names: Sequence[str], seed: int) -> int:
    """Run it; a signal cancels it, and it still cleans up."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    log = FOLDER / "chaos-log.txt"
    log.write_text("", encoding="utf-8")
    setting = make_setting(ROOT / "deploy" / "env.example", FOLDER / "env")
    environ = {**base_environ(), **settings_files(FOLDER)}
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(ROOT)])
    runner = Runner(log, environ, ROOT, list(setting.secrets))
    podman = Podman(runner, PROJECT, compose_command(setting.file))
    steps = Steps()
    try:
        await break_it(runner, podman, setting, steps, names, seed)
    except SmokeError as error:
        say(f"{error}\nEverything that was said is in {log}")
        return 1
    except asyncio.CancelledError:
        say("told to stop")  # this task is the whole program: nobody waits for the cancellation
        return 1
    finally:
        setting.file.unlink(missing_ok=True)
    say(f"compose-chaos: {len(names)} passed in {steps.seconds:.0f} s")
    return 0


def locked_main() -> int:
    """Run unless another trial of this checkout runs already."""
    parser = argparse.ArgumentParser(prog="python -m deploy.smoke.experiments", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which; {', '.join(NAMES)} if none is named")
    parser.add_argument("--seed", type=int, default=0, help="chooses the victims")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another trial with containers is running in this checkout")
            return 1
        return asyncio.run(main(given.names or NAMES, given.seed))


if __name__ == "__main__":
    sys.exit(locked_main())
