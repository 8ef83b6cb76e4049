"""The clocks of a simulated cluster: each node's own, and the database's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .loop import SimLoop

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""The true time of day as every simulation begins."""
_EPOCH_US: Final = int(EPOCH.timestamp()) * 1_000_000


class SimClock:
    """A node's clocks: `odin.runtime.clock.Clock` over virtual time.

    Args:
        loop: Where time passes.
        boot_seconds: What the span clock showed as the simulation began.
        drift: How much faster (above 0) or slower its crystal is: 0.0001 is 100 ppm.
        wall_offset: Seconds by which its time of day is wrong.
    """

    def __init__(
        self,
        loop: SimLoop,
        *,
        boot_seconds: float = 5_000.0,
        drift: float = 0.0,
        wall_offset: float = 0.0,
    ) -> None:
        self._loop = loop
        self._began = loop.now
        self._boot_seconds = boot_seconds
        self._rate = 1.0 + drift
        self._wall_offset = wall_offset

    def boottime(self) -> float:
        """Return seconds since the node's boot, by its own crystal; never steps."""
        return self._boot_seconds + (self._loop.now - self._began) * self._rate

    def wall(self) -> datetime:
        """Return the node's time of day, right or wrong."""
        seconds = (self._loop.now - self._began) * self._rate + self._wall_offset
        return EPOCH + timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` by the node's own crystal."""
        await asyncio.sleep(seconds / self._rate)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back, in the process that runs now, after `seconds` by the node's own crystal."""
        return self._loop.call_later(seconds / self._rate, callback)

    def step_wall(self, seconds: float) -> None:
        """Set the time of day forward or back, as an administrator or NTP would."""
        self._wall_offset += seconds


class DatabaseClock:
    """The database's clock_timestamp(), in microseconds since 1970."""

    def __init__(self, loop: SimLoop, *, drift: float = 0.0) -> None:
        self._loop = loop
        self._began = loop.now
        self._rate = 1.0 + drift
        self._offset_us = 0

    def now_us(self) -> int:
        """Return what clock_timestamp() would."""
        return _EPOCH_US + int((self._loop.now - self._began) * self._rate * 1e6) + self._offset_us

    def step(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self._offset_us += int(seconds * 1_000_000)
