"""The door for new work: the node's own caps first, then the origin's quota.

The quota is a token bucket per origin in Valkey, shared by all engines; an engine takes a few
tokens at a time and spends them within a second. Without Valkey it keeps its share of the quota in
memory, and says so. The caps never depend on Valkey.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from odin.core.admission import Bucket, Limit, Limits, Load, Refused, admit, is_shedding, take
from odin.errors import ResourceExhaustedError
from odin.runtime.clock import Clock

log = logging.getLogger(__name__)

ORIGINS_MAX: Final = 1_000
LOAD_SECONDS: Final = 0.2
STOCK_SECONDS: Final = 1.0
STOCK_SHARE: Final = 0.02
TakeTokens: TypeAlias = Callable[[str, float, float, int], Awaitable[int | None]]
"""(origin, per second, burst, tokens): None if taken, else milliseconds until they can be.

Raises OSError if Valkey is away.
"""


@dataclass(slots=True)
class _Stock:
    """Tokens taken from the shared bucket and not spent yet; they go stale soon."""

    tokens: int
    until: float


class Admission:
    """Admits or refuses starts at this node.

    Args:
        clock: For the buckets in memory.
        limits: The caps.
        depth: Outbox rows that are not confirmed.
        oldest_ms: How long the oldest of them waits.
        nodes: How many engines share the quota.
        take_tokens: The shared bucket; None: there is no Valkey.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        *,
        depth: Callable[[], int],
        oldest_ms: Callable[[], int],
        nodes: Callable[[], int],
        take_tokens: TakeTokens | None,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._depth = depth
        self._oldest_ms = oldest_ms
        self._nodes = nodes
        self._take_tokens = take_tokens
        self._stocks: dict[str, _Stock] = {}
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._load = Load(0, 0)
        self._load_at = float("-inf")
        self.admitted_count = 0
        self.refused_count = 0
        self.is_local = take_tokens is None

    async def admit(self, origin: str) -> None:
        """Let one start in.

        Raises:
            ResourceExhaustedError: A limit refuses it; nothing was changed.
        """
        refused = admit(self._present_load(), self._limits)
        if refused is None:
            wait_ms = await self._take(origin)
            if wait_ms is None:
                self.admitted_count += 1
                return
            refused = Refused(Limit.ORIGIN_QUOTA, wait_ms)
        self.refused_count += 1
        raise ResourceExhaustedError(
            f"refused by {refused.limit.value}; ask again after {refused.retry_after_ms} ms",
            retry_after=refused.retry_after_ms / 1_000,
            details={"limit": refused.limit.value},
        )

    def _present_load(self) -> Load:
        """Return the load, measured at most five times a second: measuring walks the outbox."""
        now = self._clock.boottime()
        if now - self._load_at >= LOAD_SECONDS:
            load = Load(self._depth(), self._oldest_ms(), self._load.is_shedding)
            self._load = Load(
                load.outbox_depth, load.oldest_task_ms, is_shedding(load, self._limits)
            )
            self._load_at = now
        return self._load

    async def _take(self, origin: str) -> int | None:
        """Take a token; return None, or the milliseconds until there is one."""
        now = self._clock.boottime()
        stock = self._stocks.get(origin)
        if stock is not None and stock.tokens > 0 and now < stock.until:
            stock.tokens -= 1
            return None
        if self._take_tokens is None:
            return self._take_locally(origin)
        per_second, burst = self._limits.origin_per_second, self._limits.origin_burst
        wanted = max(1, int(per_second * STOCK_SHARE))
        try:
            wait_ms = await self._take_tokens(origin, per_second, burst, wanted)
            if wait_ms is not None and wanted > 1:
                wanted = 1
                wait_ms = await self._take_tokens(origin, per_second, burst, wanted)
        except OSError as error:
            if not self.is_local:
                log.warning("quota is this node's share now", extra={"detail": str(error)})
            self.is_local = True
            return self._take_locally(origin)
        self.is_local = False
        if wait_ms is None and wanted > 1:
            if len(self._stocks) >= ORIGINS_MAX:
                self._stocks.clear()
            self._stocks[origin] = _Stock(wanted - 1, now + STOCK_SECONDS)
        return wait_ms

    def _take_locally(self, origin: str) -> int | None:
        """Take from this node's share; of too many origins the oldest starts afresh."""
        share = 1.0 / max(1, self._nodes())
        burst = self._limits.origin_burst * share
        now = self._clock.boottime()
        bucket = self._buckets.pop(origin, None) or Bucket(burst, now)
        bucket, wait_ms = take(bucket, now, self._limits.origin_per_second * share, burst)
        self._buckets[origin] = bucket
        if len(self._buckets) > ORIGINS_MAX:
            self._buckets.popitem(last=False)
        return wait_ms
