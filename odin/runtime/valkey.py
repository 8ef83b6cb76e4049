"""Valkey, which may vanish at any time: short timeouts, a breaker, and quotas that stay atomic.

Nothing that odin promises rests on Valkey. It holds telemetry, which may be lost, and the token
buckets of admission, for which each node has a local stand-in. So a call takes 50 ms at most, and
after a few failures none is made for a while: a dead Valkey must cost nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from valkey.asyncio import Valkey
from valkey.exceptions import ValkeyError

from odin.errors import UnavailableError
from odin.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALL_SECONDS_MAX = 0.05
_CONNECTIONS_MAX = 8

# One round trip, one atomic step, and a TTL on every path: a bucket that is full again may go.
# Time is the server's: nodes with different clocks must not refill one bucket twice.
_BUCKET_SCRIPT = """
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at_ms')
local tokens = tonumber(state[1]) or capacity
local elapsed_ms = math.max(0, now_ms - (tonumber(state[2]) or now_ms))
tokens = math.min(capacity, tokens + elapsed_ms * rate / 1000)
local allowed, wait_ms = 0, 0
if tokens >= cost then
    tokens, allowed = tokens - cost, 1
else
    wait_ms = math.ceil((cost - tokens) * 1000 / rate)
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at_ms', now_ms)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity * 1000 / rate) + 1000)
return {allowed, math.floor(tokens), wait_ms}
"""


class ValkeyDownError(UnavailableError):
    """Valkey did not answer in time, or has not lately; do without it."""

    reason = "VALKEY_DOWN"


class Breaker:
    """Stops calls to something that keeps failing, and lets one through now and then to see.

    closed ──(failures_max in a row)──▶ open ──(the wait is over)──▶ one probe ──▶ closed, or open
    for twice as long.
    """

    def __init__(
        self,
        clock: Clock,
        failures_max: int = 3,
        first_wait_seconds: float = 1.0,
        longest_wait_seconds: float = 15.0,
    ) -> None:
        """Begin closed."""
        self._clock = clock
        self._failures_max = failures_max
        self._first_wait = first_wait_seconds
        self._longest_wait = longest_wait_seconds
        self._failures = 0
        self._wait = first_wait_seconds
        self._open_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether the last that was heard is that calls fail."""
        return self._open_until is not None

    def allows(self) -> bool:
        """Return whether a call may be made now; if it was open, this is the one probe."""
        if self._open_until is None:
            return True
        if self._probing or self._clock.boottime() < self._open_until:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Note that a call succeeded."""
        self._failures, self._wait = 0, self._first_wait
        self._open_until, self._probing = None, False

    def failed(self) -> None:
        """Note that a call failed."""
        self._failures += 1
        if self._probing:
            self._wait = min(2 * self._wait, self._longest_wait)
        if self._probing or self._failures >= self._failures_max:
            self._open_until = self._clock.boottime() + self._wait
        self._probing = False

    def abandoned(self) -> None:
        """Note that a call ended without telling anything; the next may be the probe."""
        self._probing = False


class ValkeyClient:
    """One process's connections to Valkey, with the time limit and the breaker around each call."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        breaker: Breaker | None = None,
        call_seconds_max: float = CALL_SECONDS_MAX,
    ) -> None:
        """Connect to nothing yet; the first call does."""
        self.breaker = breaker or Breaker(clock or SystemClock())
        self._seconds_max = call_seconds_max
        self._valkey: Valkey = Valkey.from_url(
            url,
            decode_responses=True,
            max_connections=_CONNECTIONS_MAX,
            socket_connect_timeout=1.0,
            socket_timeout=1.0,
        )

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Any]:
        """Give the bare client for one bounded exchange.

        Raises:
            ValkeyDownError: it failed, took too long, or was not tried because others did.
        """
        if not self.breaker.allows():
            raise ValkeyDownError("Valkey has not answered lately, and is not asked for a while")
        try:
            async with asyncio.timeout(self._seconds_max):
                yield self._valkey
        except (ValkeyError, OSError) as error:  # TimeoutError is an OSError
            self.breaker.failed()
            raise ValkeyDownError(f"Valkey did not answer: {type(error).__name__}") from error
        except BaseException:  # the caller's own error, or its cancellation: says nothing of Valkey
            self.breaker.abandoned()
            raise
        self.breaker.succeeded()

    async def close(self) -> None:
        """Close every connection."""
        await self._valkey.aclose()


@dataclass(frozen=True, slots=True)
class BucketAnswer:
    """What a token bucket said."""

    allowed: bool
    tokens_left: int
    retry_after_ms: int


async def take_token(
    client: ValkeyClient, origin: str, *, capacity: int, refill_per_second: float, cost: int = 1
) -> BucketAnswer:
    """Take `cost` tokens from the bucket of `origin`, or learn when there will be enough.

    Args:
        client: Where the bucket is.
        origin: Who asks; only its hash goes into the key.
        capacity: Tokens of a full bucket; a bucket not seen for long is full.
        refill_per_second: Tokens that come back per second.
        cost: Tokens to take, at most `capacity`.

    Raises:
        ValueError: the numbers make no bucket.
        ValkeyDownError: nobody knows; fall back to the node's own share.
    """
    if not (0 < cost <= capacity and refill_per_second > 0):
        raise ValueError(f"no bucket: {capacity=}, {refill_per_second=}, {cost=}")
    async with client.call() as valkey:
        allowed, left, wait_ms = await valkey.eval(
            _BUCKET_SCRIPT, 1, quota_key(origin), capacity, refill_per_second, cost
        )
    return BucketAnswer(bool(allowed), int(left), int(wait_ms))


def quota_key(origin: str) -> str:
    """Return the key of an origin's bucket; holds no text of a user's."""
    digest = blake2b(origin.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"odin:quota:{digest}"
