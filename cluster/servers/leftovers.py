"""One owner for one data folder, and the end of what an earlier owner left running in it.

Two servers on one data folder destroy it. The owner therefore holds a lock of the kernel on the
folder, which goes when the owner goes, however it went. Whoever gets the lock while a server still
runs there has found an orphan, and ends it.
"""

import asyncio
import fcntl
import os
import signal
from pathlib import Path

from .common import ServerError

_END_SECONDS = 10.0
_POLL_SECONDS = 0.05


class FolderLock:
    """The right to run a server in a folder; taken at start, given back at stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock; taking it twice is no error.

        Raises:
            ServerError: another process holds it.
        """
        if self._descriptor is not None:
            return
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ServerError(
                f"another process runs a server in {self._folder}",
                "Stop that one first (`make down`), or use another folder.",
            ) from error
        self._descriptor = descriptor

    def give_back(self) -> None:
        """Give the lock back; giving it back twice is no error."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remember(folder: Path, pid: int) -> None:
    """Write down which process serves the folder, for the next owner."""
    (folder / "pid").write_text(f"{pid}\n", encoding="ascii")


async def end_orphan(folder: Path, number: signal.Signals) -> None:
    """End the server that an earlier owner left in the folder; call it with the lock held.

    A process id is used again by the system, so only a process that names the folder in its
    arguments or environment is taken for the orphan.

    Raises:
        ServerError: it would not end.
    """
    pid = _remembered(folder)
    if pid is None or not serves(pid, folder):
        return
    for attempt in (number, signal.SIGKILL):
        _signal(pid, attempt)
        try:
            async with asyncio.timeout(_END_SECONDS):
                while serves(pid, folder):  # noqa: ASYNC110 - nothing tells of a foreign end
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            continue
        return
    raise ServerError(f"process {pid} still serves {folder} and cannot be ended")


def _remembered(folder: Path) -> int | None:
    try:
        return int((folder / "pid").read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def serves(pid: int, folder: Path) -> bool:
    """Return whether the process runs and names the folder in its arguments or environment."""
    name = os.fsencode(folder)
    process = Path("/proc") / str(pid)
    try:
        return any(name in (process / part).read_bytes() for part in ("cmdline", "environ"))
    except OSError:  # it has ended, or belongs to somebody else
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
