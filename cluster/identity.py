"""Tells a process from a later one that was given the same pid.

A pid in a file is no proof: after a crash, or a reboot, it may be anybody's. What is recorded with
it is when the process started, and in which life of the machine; only a process that has both is
the one that was meant.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.runtime.clock import Clock

_STATE_FIELD: Final = 0
_START_FIELD: Final = 19
_POLL_SECONDS: Final = 0.05
# Columns of /proc/net/tcp, and the state of a socket that listens.
_LOCAL: Final = 1
_TCP_STATE: Final = 3
_INODE: Final = 9
_LISTEN: Final = "0A"


def fingerprint(pid: int) -> str:
    """Return what tells the running process `pid` from every other; empty if there is none.

    A process that has ended but was not waited for (a zombie) counts as gone.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _fingerprint_without_proc(pid)
    except ProcessLookupError:
        return ""
    # The second field is the command in parentheses and may hold anything; fields count after it.
    fields = status.rpartition(")")[2].split()
    if fields[_STATE_FIELD] in "ZX":
        return ""
    return f"{_boot_id()}:{fields[_START_FIELD]}"


def is_same(pid: int | None, recorded: str) -> bool:
    """Return whether the process that was recorded as `pid` still runs."""
    return pid is not None and recorded != "" and fingerprint(pid) == recorded


async def end_recorded(
    processes: Iterable[tuple[int, str]], clock: Clock, grace_seconds: float
) -> list[int]:
    """End every recorded process that still runs, with its group, and return their pids.

    They are asked first (SIGTERM, continued if they were frozen), and killed after the grace.

    Args:
        processes: (pid, fingerprint) of each.
        clock: Measures the grace.
        grace_seconds: How long all of them have together.
    """
    found = [(pid, mark) for pid, mark in processes if is_same(pid, mark)]
    for pid, _ in found:
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)
    until = clock.boottime() + grace_seconds
    while any(is_same(pid, mark) for pid, mark in found) and clock.boottime() < until:
        await clock.sleep(_POLL_SECONDS)
    for pid, mark in found:
        if is_same(pid, mark):
            send(pid, signal.SIGKILL)
    until = clock.boottime() + grace_seconds
    while any(is_same(pid, mark) for pid, mark in found) and clock.boottime() < until:
        await clock.sleep(_POLL_SECONDS)
    return [pid for pid, _ in found]


def listens(pid: int, port: int) -> bool:
    """Return whether the process itself listens on the TCP port.

    That somebody answers there does not say who: another program may have been quicker. On systems
    without /proc it cannot be told, and is believed.
    """
    table = Path(f"/proc/{pid}/net/tcp")
    if not Path("/proc/self/stat").exists():
        return True
    try:
        rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended
        return False
    inodes = {
        f"socket:[{row[_INODE]}]"
        for row in rows
        if row[_TCP_STATE] == _LISTEN and int(row[_LOCAL].rpartition(":")[2], 16) == port
    }
    return any(_link_of(one) in inodes for one in descriptors)


def _link_of(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # closed meanwhile
        return ""


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to the group that the process leads, or to it alone; once to each, at most.

    Gone already is no error.
    """
    for deliver in (os.killpg, os.kill):
        try:
            deliver(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        return


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except OSError:
        return "?"


def _fingerprint_without_proc(pid: int) -> str:
    """Return the start time that `ps` shows, on systems that have no /proc."""
    command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()  # noqa: S603 - fixed words and a number
