"""The door for new work.

The node's own caps first, then the origin's quota, shared through Valkey or kept as a share in
memory.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from odin.core.admission import Bucket, Limit, Limits, Load, Refused, admit, is_shedding, take
from odin.errors import ResourceExhaustedError
from odin.runtime.clock import Clock

log = logging.getLogger(__name__)

ORIGINS_MAX: Final = 1_000
TakeToken = Callable[[str, float, float], Awaitable[int | None]]
"""(origin, per second, burst).

None if a token was taken, else milliseconds to wait; raises if Valkey is away.
"""


class Admission:
    """Admits or refuses starts at this node.

    Args:
        clock: For the buckets in memory.
        limits: The caps.
        depth: Outbox rows that are not confirmed.
        oldest_ms: How long the oldest of them waits.
        nodes: How many engines share the quota.
        take_token: The shared bucket; None: there is no Valkey.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        *,
        depth: Callable[[], int],
        oldest_ms: Callable[[], int],
        nodes: Callable[[], int],
        take_token: TakeToken | None,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._depth = depth
        self._oldest_ms = oldest_ms
        self._nodes = nodes
        self._take_token = take_token
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._is_shedding = False
        self.admitted_count = 0
        self.refused_count = 0
        self.is_local = take_token is None

    async def admit(self, origin: str) -> None:
        """Let one start in.

        Raises:
            ResourceExhaustedError: A limit refuses it; nothing was changed.
        """
        load = Load(self._depth(), self._oldest_ms(), self._is_shedding)
        self._is_shedding = is_shedding(load, self._limits)
        refused = admit(load, self._limits)
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

    async def _take(self, origin: str) -> int | None:
        if self._take_token is not None:
            try:
                wait_ms = await self._take_token(
                    origin, self._limits.origin_per_second, self._limits.origin_burst
                )
            except OSError as error:
                if not self.is_local:
                    log.warning("quota is this node's share now", extra={"detail": str(error)})
                self.is_local = True
            else:
                self.is_local = False
                return wait_ms
        return self._take_locally(origin)

    def _take_locally(self, origin: str) -> int | None:
        """Take from this node's share of the quota.

        Of too many origins the oldest starts afresh.
        """
        share = 1.0 / max(1, self._nodes())
        burst = self._limits.origin_burst * share
        now = self._clock.boottime()
        bucket = self._buckets.pop(origin, None) or Bucket(burst, now)
        bucket, wait_ms = take(bucket, now, self._limits.origin_per_second * share, burst)
        self._buckets[origin] = bucket
        if len(self._buckets) > ORIGINS_MAX:
            self._buckets.popitem(last=False)
        return wait_ms
