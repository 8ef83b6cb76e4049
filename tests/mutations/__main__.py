"""`python -m tests.mutations [NAME…]`: takes each guard out of a copy and demands that tests fail.

First all named tests must pass in an unchanged copy; then each mutation is made in a copy of its
own, and each of its tests must fail there. Prints a table with what the first failing test said.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.servers.__main__ import exports
from cluster.servers.group import ServerSet

from .guards import MUTATIONS
from .mutation import ROOT, Mutation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Compiled modules come along: a copy that had to compile everything would take twice as long.
LEFT_OUT: Final = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.log", "bench")
SECONDS: Final = 300
_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)
_SAID: Final = re.compile(r"^E\s+(.+)$|^\s+\|\s(\S*(?:Error|Failed).*)$", re.MULTILINE)


def copied(folder: Path) -> Path:
    """Copy the project, as it is now, into the folder."""
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    return folder


def tried(root: Path, tests: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run the tests in a copy; return pytest's exit code and what it said."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(
        command,
        cwd=root,
        env={**environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        start_new_session=True,
    )
    return ended.returncode, ended.stdout + ended.stderr


def judged(mutation: Mutation, folder: Path, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Take the guard out of a copy; return whether each of its tests failed, and what was said."""
    root = copied(folder / mutation.name.replace(" ", "-"))
    try:
        for edit in mutation.edits:
            edit.apply(root)
        code, output = tried(root, mutation.tests, environ)
    finally:
        shutil.rmtree(root)
    failed = {one.partition("[")[0] for one in _FAILED.findall(output)}
    missing = [one for one in mutation.tests if one.partition("[")[0] not in failed]
    if code != 1 or missing:
        tail = output.strip().splitlines()[-1:] or [""]
        return False, f"NOT SEEN by {', '.join(missing) or 'pytest'}: {tail[0]}"
    said = _SAID.search(output)
    return True, "" if said is None else (said[1] or said[2])[:150]


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Lend the environment of the tests, with servers of its own unless some are named."""
    environ = dict(os.environ)
    if environ.get("ODIN_TEST_POSTGRES"):
        yield environ
        return
    async with ServerSet(folder, os.environ) as found:
        lines = re.findall(r"export (\w+)='(.*)'", exports(found))
        yield {**environ, **dict(lines)}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def all_pass(chosen: Sequence[Mutation], folder: Path, environ: Mapping[str, str]) -> bool:
    """Return whether the tests pass in an unchanged copy."""
    tests = list(dict.fromkeys(test for one in chosen for test in one.tests))
    code, output = tried(copied(folder / "unchanged"), tests, environ)
    say(output if code else f"{len(tests)} tests pass while every guard stands")
    return code == 0


def hunted(chosen: Sequence[Mutation], folder: Path, environ: Mapping[str, str], jobs: int) -> int:
    """Try the mutations; return how many were not seen."""
    with ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(lambda one: _shown(one, folder, environ), chosen))


def _shown(mutation: Mutation, folder: Path, environ: Mapping[str, str]) -> bool:
    """Try one mutation and say what came of it; return whether it was missed."""
    began = time.monotonic()
    is_seen, said = judged(mutation, folder, environ)
    word = "red" if is_seen else "GREEN"
    say(f"{word:<6} {time.monotonic() - began:5.1f} s  {mutation.name:<44} {said}")
    return not is_seen


async def main() -> int:
    """Try the named mutations, all if none is named; return 0 if all were seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--jobs", type=int, default=2, help="copies side by side")
    parser.add_argument("--at-once", action="store_true", help="without the unchanged copy first")
    given = parser.parse_args()
    chosen = [
        one for one in MUTATIONS if not given.names or any(n in one.name for n in given.names)
    ]
    if given.list:
        for one in chosen:
            say(f"{one.name}: {', '.join(one.tests)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="odin-mutations-") as temporary:
        folder = Path(temporary)
        async with servers(folder / "servers") as environ:
            if not given.at_once and not await asyncio.to_thread(all_pass, chosen, folder, environ):
                say("tests fail before anything is taken out")
                return 1
            missed = await asyncio.to_thread(hunted, chosen, folder, environ, given.jobs)
    say(f"{len(chosen) - missed} of {len(chosen)} mutations turn their tests red")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
