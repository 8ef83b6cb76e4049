"""A service ends when the process that supervises it is gone, however that one went.

`kill -9` of a supervisor must not leave engines behind that hold leases and ports. The supervisor
puts its own pid into `ODIN_PARENT_PID`; the child compares pid *and* start time, so that a reused
pid does not pass for the old supervisor.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from odin.runtime.clock import SystemClock, pause

if TYPE_CHECKING:
    import asyncio

    from odin.runtime.clock import Clock

PARENT_PID = "ODIN_PARENT_PID"
_CHECK_SECONDS = 0.5

log = logging.getLogger(__name__)


class ParentWatch:
    """Sets the stop event once a process is gone; a loop for `serve`."""

    def __init__(self, pid: int, clock: Clock | None = None) -> None:
        """Remember the process `pid` as it is now; already gone counts as gone."""
        self._pid = pid
        self._clock = clock or SystemClock()
        self._started = _start_time(pid)

    @classmethod
    def from_environment(cls) -> ParentWatch | None:
        """Return a watch on the process named by `ODIN_PARENT_PID`, or None if none is."""
        value = os.environ.get(PARENT_PID, "")
        return cls(int(value)) if value.isdecimal() else None

    def is_gone(self) -> bool:
        """Return whether the process has ended (a zombie has)."""
        return self._started is None or _start_time(self._pid) != self._started

    async def __call__(self, stop: asyncio.Event) -> None:
        """Look twice a second; set `stop` and return when the process is gone."""
        while not self.is_gone():
            if await pause(self._clock, stop, _CHECK_SECONDS):
                return
        log.warning("supervisor is gone", extra={"pid": self._pid})
        stop.set()


def _start_time(pid: int) -> str | None:
    """Return what tells this process from a later one with its pid; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_time_without_proc(pid)
    except ProcessLookupError:
        return None
    # The second field is the command in parentheses and may hold anything; fields count after it.
    fields = status.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else start


def _start_time_without_proc(pid: int) -> str | None:
    """Return a constant while the process exists, on systems that have no /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "running"
    return "running"
