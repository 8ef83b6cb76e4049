"""Which new work is let in. Pure: loads and limits in, admitted or refused out.

Only the start of something new is ever refused; what runs is never slowed. Shared limits are looked
at before an origin's own quota, so that a refusal names the scarcest thing first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil


class Limit(Enum):
    """What refused."""

    OUTBOX_DEPTH = "outbox_depth"
    QUEUE_DELAY = "queue_delay"
    ORIGIN_QUOTA = "origin_quota"


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps. `origin_per_second` is the refill of an origin's bucket, `origin_burst` its size.

    `queue_delay_on_ms` and `queue_delay_off_ms` are two marks, so that the door does not flutter.
    """

    outbox_depth_max: int = 20_000
    queue_delay_on_ms: int = 5_000
    queue_delay_off_ms: int = 3_500
    origin_per_second: float = 500.0
    origin_burst: float = 1_000.0


@dataclass(frozen=True, slots=True)
class Load:
    """How loaded the node is now."""

    outbox_depth: int
    oldest_task_ms: int
    is_shedding: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not, and when to ask again."""

    limit: Limit
    retry_after_ms: int


def admit(load: Load, limits: Limits) -> Refused | None:
    """Return why nothing new may begin now, or None if it may.

    Args:
        load: The node's load; `is_shedding` is what `is_shedding` returned last.
        limits: The caps.
    """
    if load.outbox_depth >= limits.outbox_depth_max:
        return Refused(Limit.OUTBOX_DEPTH, retry_after_ms=1_000)
    if is_shedding(load, limits):
        return Refused(Limit.QUEUE_DELAY, retry_after_ms=max(1_000, load.oldest_task_ms // 2))
    return None


def is_shedding(load: Load, limits: Limits) -> bool:
    """Return whether the queue delay keeps new work out.

    On above one mark, off below a lower one.
    """
    mark = limits.queue_delay_off_ms if load.is_shedding else limits.queue_delay_on_ms
    return load.oldest_task_ms >= mark


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket as one node keeps it when there is no Valkey."""

    tokens: float
    at: float


def take(bucket: Bucket, now: float, per_second: float, burst: float) -> tuple[Bucket, int | None]:
    """Take a token; return the bucket after, and None or the milliseconds until there is one.

    Args:
        bucket: The bucket as it was.
        now: Boottime in seconds.
        per_second: Its refill, above 0.
        burst: Its size.
    """
    tokens = min(burst, bucket.tokens + max(0.0, now - bucket.at) * per_second)
    at = max(now, bucket.at)  # an instant must not be counted twice
    if tokens >= 1.0:
        return Bucket(tokens - 1.0, at), None
    return Bucket(tokens, at), ceil((1.0 - tokens) / per_second * 1_000)
