"""A built wheel in an environment of its own, and odin's commands run from there."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
READY_SECONDS = 40.0
POLL_SECONDS = 0.05


def build(target: str, folder: Path, source: Path = ROOT) -> Path:
    """Build "wheel" or "sdist" of the project in `source`; return the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=50)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and of the checkout nothing."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def environ(self, **more: str) -> dict[str, str]:
        """What an author's shell has: nothing of odin's; it all ends with this process."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ODIN_", "PYTHON"))}
        path = f"{self.folder / 'bin'}:{kept.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "ODIN_PARENT_PID": str(os.getpid()), **more}

    def run(
        self, *command: str, cwd: Path, seconds: float = 40
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd,
            env=self.environ(),
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )

    def odin(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return self.run("odin", *arguments, cwd=cwd)

    def result(self, *arguments: str, cwd: Path) -> object:
        """The result of `odin run ... --wait`."""
        ended = self.odin("run", *arguments, "--wait", cwd=cwd)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


def install_without_dependencies(wheel: Path, folder: Path) -> Installed:
    """Install the wheel into a new environment that borrows what it needs from this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    installed = Installed(folder)
    # A path in a .pth file brings the packages there, not the editable checkout that it names.
    (installed.site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(installed.python), "install", "-q"]
    command += ["--no-deps", "--no-index", "--ignore-installed", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=50)
    return installed


class Running:
    """A command of odin that goes on until it is told to stop."""

    def __init__(self, installed: Installed, cwd: Path, *arguments: str, **more: str) -> None:
        self.cwd = cwd
        self._log = cwd / f".{arguments[0]}-{time.monotonic_ns()}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                ["odin", *arguments],
                cwd=cwd,
                env=installed.environ(**more),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def says(self, *words: str, seconds: float = READY_SECONDS) -> str:
        """Wait until all the words are in the output; return it."""
        self.until(lambda: all(word in self.text for word in words), seconds, " ".join(words))
        return self.text

    def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"it ended:\n{self.text}"
            assert time.monotonic() < deadline, f"no {what!r} in {seconds} s:\n{self.text}"
            time.sleep(POLL_SECONDS)

    @property
    def address(self) -> str:
        (line,) = [line for line in self.text.splitlines() if line.strip().startswith("address")]
        return line.split()[1]

    def end(self, number: signal.Signals = signal.SIGINT) -> float:
        """Tell it to stop; return how many seconds that took."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=5)
            raise
        return time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()
