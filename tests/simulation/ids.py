"""Ids of a simulated process: the same for the same seed, and different between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.runtime.ids import uuid7

if TYPE_CHECKING:
    from .clocks import SimClock
    from .loop import SimLoop

_BUFFER_BYTES: Final = 4_096


class SimIds:
    """`odin.runtime.ids.Ids` from seeded dice, buffered like the system's own.

    Args:
        loop: Gives the seed.
        name: Whose ids they are; two of one name in one simulation would make the same ones.
        clock: Its time of day goes into run ids.
    """

    def __init__(self, loop: SimLoop, name: str, clock: SimClock) -> None:
        self._dice = loop.dice_for(f"ids/{name}")
        self._clock = clock
        self._bytes = b""
        self._used = 0

    def run_id(self) -> str:
        """Return a new UUIDv7."""
        unix_ms = int(self._clock.wall().timestamp() * 1_000)
        return uuid7(unix_ms, int.from_bytes(self._take(10), "big") >> 6)

    def incarnation(self) -> str:
        """Return 16 hexadecimal digits."""
        return self._take(8).hex()

    def claim_token(self) -> str:
        """Return 32 hexadecimal digits."""
        return self._take(16).hex()

    def request_id(self) -> str:
        """Return 32 hexadecimal digits."""
        return self._take(16).hex()

    def report_id(self) -> str:
        """Return 24 hexadecimal digits."""
        return self._take(12).hex()

    def batch_random(self) -> int:
        """Return 64 random bits."""
        return int.from_bytes(self._take(8), "big")

    def _take(self, count: int) -> bytes:
        end = self._used + count
        if end > len(self._bytes):
            self._bytes, end = self._dice.randbytes(_BUFFER_BYTES), count
        self._used = end
        return self._bytes[end - count : end]
