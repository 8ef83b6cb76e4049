"""`make compose-smoke`: one step after another, each with its seconds; exit code 0 or 1."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from odin.runtime.clock import SystemClock

from .images import Images
from .podman import Podman, missing_programs, settings_files
from .running import Runner, SmokeError
from .setting import Setting, make_setting
from .trial import Trial

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".odin" / "compose-smoke"
PROJECT: Final = "odin-smoke"
WHOLE_SECONDS: Final = 600.0
CLEANING_SECONDS: Final = 180.0
PACKAGES: Final = (
    "podman", "runc", "debootstrap", "netavark", "aardvark-dns", "catatonit", "iptables"
)  # fmt: skip


class Steps:
    """Says what is done, and how long it took."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._begin = self._clock.boottime()

    @property
    def seconds(self) -> float:
        """Since the first step began."""
        return self._clock.boottime() - self._begin

    @contextlib.asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[list[str]]:
        """Time one step; what is appended to the yielded list is shown behind it."""
        begin, facts = self._clock.boottime(), []  # type: float, list[str]
        try:
            yield facts
        except BaseException:
            say(f"FAILED {name} after {self._clock.boottime() - begin:.1f} s")
            raise
        told = f": {', '.join(facts)}" if facts else ""
        say(f"{self._clock.boottime() - begin:6.1f} s  {name}{told}")


def say(text: str) -> None:
    """Write a line for whoever watches."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def prepare(runner: Runner, steps: Steps) -> None:
    """Install the programs that are missing, and podman-compose into a folder of its own."""
    async with steps.step("tools") as facts:
        if missing := missing_programs():
            if os.geteuid() != 0:
                raise SmokeError(f"install {', '.join(missing)} first (Debian: {PACKAGES})")
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            await runner.run("apt-get", "update", "-qq", seconds=120)
            install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")
            await runner.run(*install, *PACKAGES, seconds=240, extra=quiet)
        pinned, tools = ROOT / "deploy" / "smoke" / "requirements.txt", FOLDER / "tools"
        if not (tools / "podman_compose.py").exists():
            await runner.run(
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"),
                *("--target", str(tools), "--requirement", str(pinned)),
                seconds=120,
            )
        facts.append((await runner.run("podman", "--version", seconds=20)).splitlines()[-1])


async def build(podman: Podman, steps: Steps) -> None:
    """Make every image that is needed."""
    scratch = FOLDER / "scratch"
    scratch.mkdir(exist_ok=True)
    images = Images(podman, ROOT, scratch)
    async with steps.step("bases by debootstrap") as facts:
        facts.append(f"{await images.bases()} made")
    async with steps.step("stand-ins for the servers' images") as facts:
        facts.append(f"{await images.standins()} made")
    async with steps.step("odin's image"):
        await images.odin()


async def try_out(trial: Trial, steps: Steps) -> None:
    """Start everything and put it to the test."""
    for name, act in trial.acts():
        async with steps.step(name) as facts:
            facts.extend(await act())


async def smoke(runner: Runner, podman: Podman, setting: Setting, steps: Steps) -> None:
    """Do it all; whatever was started is gone at the end.

    Raises:
        SmokeError: something did not go as it must.
    """
    trial = Trial(podman, setting)
    try:
        async with asyncio.timeout(WHOLE_SECONDS):
            await prepare(runner, steps)
            async with steps.step("leftovers of an earlier run"):
                await podman.remove_everything()
            await build(podman, steps)
            await try_out(trial, steps)
    except TimeoutError:
        raise SmokeError(f"not done after {WHOLE_SECONDS:.0f} s") from None
    except SmokeError:
        with contextlib.suppress(SmokeError):
            await trial.keep_logs()
        raise
    finally:
        await clean(podman, steps)


async def clean(podman: Podman, steps: Steps) -> None:
    """Remove what was made; a second signal cannot cut this short, time can."""
    with _unstoppable():
        async with asyncio.timeout(CLEANING_SECONDS):
            async with steps.step("containers, volumes and networks removed"):
                await podman.remove_everything()


@contextlib.contextmanager
def _unstoppable() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    yield


async def main() -> int:
    """Run the smoke test; a signal cancels it, and it still cleans up."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    log = FOLDER / "log.txt"
    log.write_text("", encoding="utf-8")
    setting = make_setting(ROOT / "deploy" / "env.example", FOLDER / "env")
    environ = {**base_environ(), **settings_files(FOLDER)}
    runner = Runner(log, environ, ROOT, list(setting.secrets))
    podman = Podman(runner, PROJECT, compose_command(setting.file))
    steps = Steps()
    try:
        await smoke(runner, podman, setting, steps)
    except SmokeError as error:
        say(f"{error}\nEverything that was said is in {log}")
        return 1
    except asyncio.CancelledError:
        say("told to stop")  # this task is the whole program: nobody waits for the cancellation
        return 1
    finally:
        setting.file.unlink(missing_ok=True)
    say(f"compose-smoke: passed in {steps.seconds:.0f} s")
    return 0


def base_environ() -> dict[str, str]:
    """Return the environment without odin's settings, and with compose's tool on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ODIN_", "COMPOSE_"))}
    return {**kept, "PYTHONPATH": str(FOLDER / "tools")}


def compose_command(env_file: Path) -> Sequence[str]:
    """Return the words that begin a compose command on this deployment."""
    return (
        *(sys.executable, "-m", "podman_compose", "--no-ansi", "--in-pod", "false"),
        *("--project-name", PROJECT, "--env-file", str(env_file)),
        *("--file", str(ROOT / "compose.yaml")),
    )


def locked_main() -> int:
    """Run unless another smoke test of this checkout runs already."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another compose-smoke of this checkout is running")
            return 1
        return asyncio.run(main())


if __name__ == "__main__":
    sys.exit(locked_main())
