"""How long to wait before the next try. Pure: jitter is the caller's, and is recorded by it."""

from __future__ import annotations

from math import isfinite
from typing import Self

import msgspec

from odin.errors import InvalidArgumentError

_DEFAULT_CEILING_FACTOR = 100
# Beyond this many milliseconds (some 292 years) an interval is no interval any more.
_INTERVAL_MS_MAX = 2**63 // 1_000_000


class RetryPolicySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A retry policy as history and the wire hold it: integer milliseconds only.

    The defaults are those that users of Temporal expect: 1 s, doubled each time, at most 100 times
    the first interval, without end.

    Attributes:
        initial_interval_ms: Wait after the first failed attempt, above 0.
        backoff_coefficient: Factor from one wait to the next, at least 1.
        maximum_interval_ms: Cap of a wait; None means 100 times the initial interval.
        maximum_attempts: Attempts in all, the first included; 0 means no limit.
        non_retryable_error_types: Names of error types after which no retry is made.
    """

    initial_interval_ms: int = 1_000
    backoff_coefficient: float = 2.0
    maximum_interval_ms: int | None = None
    maximum_attempts: int = 0
    non_retryable_error_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a policy that contradicts itself.

        Raises:
            InvalidArgumentError: names the field and what it must be.
        """
        if not 0 < self.initial_interval_ms <= _INTERVAL_MS_MAX:
            raise _bad("initial_interval", self.initial_interval_ms, "above 0")
        if not (isfinite(self.backoff_coefficient) and self.backoff_coefficient >= 1):
            raise _bad("backoff_coefficient", self.backoff_coefficient, "a number of at least 1")
        if self.maximum_interval_ms is not None and not (
            self.initial_interval_ms <= self.maximum_interval_ms <= _INTERVAL_MS_MAX
        ):
            raise _bad(
                "maximum_interval", self.maximum_interval_ms, "at least the initial interval"
            )
        if self.maximum_attempts < 0:
            raise _bad("maximum_attempts", self.maximum_attempts, "0 (no limit) or more")

    @classmethod
    def once(cls) -> Self:
        """Return the policy of a single attempt."""
        return cls(maximum_attempts=1)

    @property
    def ceiling_ms(self) -> int:
        """The longest wait that the policy allows, in milliseconds."""
        if self.maximum_interval_ms is not None:
            return self.maximum_interval_ms
        return _DEFAULT_CEILING_FACTOR * self.initial_interval_ms

    def allows(self, error_type: str) -> bool:
        """Return whether a failure of this type may be retried."""
        return error_type not in self.non_retryable_error_types


def delay_after_ms(attempt: int, policy: RetryPolicySpec) -> int | None:
    """Return the wait between failed `attempt` and the next one in ms, or None to give up.

    Args:
        attempt: The attempt that just failed, counted from 1.
        policy: The policy as recorded when the activity was scheduled.

    Raises:
        ValueError: `attempt` is below 1.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, got {attempt}")
    if policy.maximum_attempts and attempt >= policy.maximum_attempts:
        return None
    try:
        grown = policy.initial_interval_ms * float(policy.backoff_coefficient) ** (attempt - 1)
    except OverflowError:  # far beyond any ceiling
        return policy.ceiling_ms
    return round(min(grown, policy.ceiling_ms))


def delay_after(attempt: int, policy: RetryPolicySpec) -> float | None:
    """Return `delay_after_ms` in seconds.

    Raises:
        ValueError: `attempt` is below 1.
    """
    delay_ms = delay_after_ms(attempt, policy)
    return None if delay_ms is None else delay_ms / 1_000


def doubled(interval_ms: int, cap_ms: int) -> int:
    """Return the next spacing of something published again and again: twice, up to a cap.

    The spacing of outbox rows without a confirm and of due tasks: a backlog must not feed itself.

    Raises:
        ValueError: the interval or the cap is not above 0.
    """
    if interval_ms <= 0 or cap_ms <= 0:
        raise ValueError(f"spacing and cap are above 0 ms, got {interval_ms} and {cap_ms}")
    return min(2 * interval_ms, cap_ms)


def _bad(field: str, value: object, need: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"retry policy: {field} must be {need}, got {value!r}",
        reason="BAD_RETRY_POLICY",
        details={"field": field},
    )
