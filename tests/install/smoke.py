"""`make install-smoke`: a newcomer's path with the real pip, timed.

An empty environment, the wheel with its extras from the package index, the workflow of the README
in an empty folder, `odin dev`, and the result. Then every code block of both pages from there, and
what a command says when only the base package is installed.
"""

import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .pages import Reader, blocks, commands
from .support import Installed, Running, build

PIP_SECONDS = 600
PAGES = ("README.md", "docs/quickstart.md")


def main() -> int:
    """Walk the path; return 0, or raise what went wrong."""
    with tempfile.TemporaryDirectory(prefix="odin-install-") as temporary:
        folder = Path(temporary)
        wheel = build("wheel", folder / "dist")
        bare = _environment(folder / "bare", str(wheel))
        refused = bare.odin("dev", cwd=folder)
        if refused.returncode != 4 or "odin-workflows[server,dev]" not in refused.stderr:
            raise SystemExit(f"without extras: {refused.stderr}")
        _say("without extras `odin dev` names them")
        with _timed("whole path"):
            with _timed("venv and pip install"):
                installed = _environment(folder / "venv", f"{wheel}[server,dev]")
            _newcomer(installed, folder / "own")
        for page in PAGES:
            with _timed(f"all blocks of {page}"):
                own = folder / page.replace("/", "-")
                own.mkdir()
                Reader(installed, own, lambda _command: None).follow(page)
    return 0


def _newcomer(installed: Installed, own: Path) -> None:
    """Write the README's workflow, start `odin dev`, run it."""
    own.mkdir()
    page = blocks(PAGES[0])
    (text,) = [text for language, text in page if language == "python"]
    (own / "shop.py").write_text(text)
    (run,) = [
        one for kind, text in page if kind == "console" for one in commands(text) if "run" in one
    ]
    with _timed("odin dev until ready (first start, empty database)"):
        dev = Running(installed, own, "dev", "shop")
        dev.says("is ready")
    with dev:
        with _timed("odin run until the result (2 s of it the workflow's timer)"):
            ended = installed.run(*run, cwd=own)
        if ended.returncode != 0:
            raise SystemExit(ended.stderr)
        _say(f"result: {ended.stdout.strip()}")
        _say(f"odin dev ended in {dev.end():.1f} s")


def _environment(folder: Path, requirement: str) -> Installed:
    venv.create(folder, with_pip=True, symlinks=True)
    installed = Installed(folder)
    command = (str(installed.python), "-m", "pip", "install", "-q", requirement)
    ended = installed.run(*command, cwd=folder, seconds=PIP_SECONDS)
    if ended.returncode != 0:
        raise SystemExit(ended.stderr)
    return installed


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    _say(f"{what}: {time.monotonic() - began:.1f} s")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
