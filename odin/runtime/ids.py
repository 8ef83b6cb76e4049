"""The one module that makes ids. Everything that needs one takes an `Ids`, so tests can choose.

Ids that must not be guessed or met again (incarnations, claim tokens) come from `secrets`. A run id
is a UUIDv7: it sorts by the time it was made, which keeps the index on it compact.
"""

from __future__ import annotations

import random
import secrets
from typing import Protocol
from uuid import UUID

from odin.runtime.clock import Clock, SystemClock

_FETCHED_BYTES = 4_096
_SEEDED_EPOCH_MS = 1_700_000_000_000


class Ids(Protocol):
    """Where ids come from."""

    def run_id(self) -> str:
        """Return a new run id: a UUIDv7 in its canonical text form."""
        ...

    def incarnation(self) -> str:
        """Return the name of one process start: 16 hexadecimal digits, never met twice."""
        ...

    def claim_token(self) -> str:
        """Return a token that proves one claim of one activity attempt."""
        ...

    def request_id(self) -> str:
        """Return an idempotency id for a call whose caller gave none."""
        ...

    def report_id(self) -> str:
        """Return an id for one report of a worker, the same for all its repeats."""
        ...

    def batch_random(self) -> int:
        """Return the random that goes into a batch's state token: 64 bits, unsigned."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Take the clock whose wall time goes into run ids."""
        self._clock = clock or SystemClock()
        self._bytes = b""
        self._used = 0

    def run_id(self) -> str:
        """Return a new UUIDv7."""
        unix_ms = int(self._clock.wall().timestamp() * 1_000)
        return uuid7(unix_ms, int.from_bytes(self._take(10), "big") >> 6)

    def incarnation(self) -> str:
        """Return 16 hexadecimal digits."""
        return secrets.token_hex(8)

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
        """Return random bytes of the operating system, fetched some hundred ids at a time."""
        end = self._used + count
        if end > len(self._bytes):
            self._bytes, end = secrets.token_bytes(_FETCHED_BYTES), count
        self._used = end
        return self._bytes[end - count : end]


class SeededIds:
    """The same ids in the same order for the same seed. For tests and simulations only."""

    def __init__(self, seed: int) -> None:
        """Start the sequence that belongs to `seed`."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose, never in production
        self._made_count = 0

    def run_id(self) -> str:
        """Return a UUIDv7 whose time part counts up by a millisecond from a fixed instant."""
        self._made_count += 1
        return uuid7(_SEEDED_EPOCH_MS + self._made_count, self._random.getrandbits(74))

    def incarnation(self) -> str:
        """Return 16 hexadecimal digits."""
        return f"{self._random.getrandbits(64):016x}"

    def claim_token(self) -> str:
        """Return 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def request_id(self) -> str:
        """Return 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def report_id(self) -> str:
        """Return 24 hexadecimal digits."""
        return f"{self._random.getrandbits(96):024x}"

    def batch_random(self) -> int:
        """Return 64 bits."""
        return self._random.getrandbits(64)


def uuid7(unix_ms: int, randomness: int) -> str:
    """Return the UUIDv7 of an instant and 74 random bits.

    Args:
        unix_ms: Milliseconds since 1970, the high 48 bits of the id.
        randomness: 74 bits: 12 beside the version, 62 beside the variant.

    Source: RFC 9562, section 5.7.
    """
    high = (unix_ms & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | (randomness >> 62 & 0xFFF)
    low = 0b10 << 62 | (randomness & (1 << 62) - 1)
    return str(UUID(int=high << 64 | low))
