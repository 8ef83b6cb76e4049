"""What authors of workflows, of activities and of clients share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from odin.core.backoff import RetryPolicySpec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RetryPolicy", "duration_ms"]

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how soon something that failed is tried again.

    Attributes:
        initial_interval: Wait after the first failed attempt.
        backoff_coefficient: Factor from one wait to the next, at least 1.
        maximum_interval: Cap of a wait; None means 100 times the initial interval.
        maximum_attempts: Attempts in all, the first included; 0 means no limit.
        non_retryable_error_types: Names of error types after which no retry is made.
    """

    initial_interval: timedelta = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | None = None
    maximum_attempts: int = 0
    non_retryable_error_types: Sequence[str] | None = None

    def to_spec(self) -> RetryPolicySpec:
        """Return the policy as history and the wire hold it.

        Raises:
            InvalidArgumentError: The policy contradicts itself; the message names the field.
        """
        return RetryPolicySpec(
            initial_interval_ms=self.initial_interval // _MILLISECOND,
            backoff_coefficient=float(self.backoff_coefficient),
            maximum_interval_ms=(
                None if self.maximum_interval is None else self.maximum_interval // _MILLISECOND
            ),
            maximum_attempts=self.maximum_attempts,
            non_retryable_error_types=tuple(self.non_retryable_error_types or ()),
        )

    @classmethod
    def from_spec(cls, spec: RetryPolicySpec) -> RetryPolicy:
        """Return the policy that `spec` holds."""
        cap_ms = spec.maximum_interval_ms
        return cls(
            initial_interval=timedelta(milliseconds=spec.initial_interval_ms),
            backoff_coefficient=spec.backoff_coefficient,
            maximum_interval=None if cap_ms is None else timedelta(milliseconds=cap_ms),
            maximum_attempts=spec.maximum_attempts,
            non_retryable_error_types=spec.non_retryable_error_types or None,
        )


def duration_ms(duration: timedelta | float | None) -> int | None:
    """Return a duration, given as timedelta or in seconds, as whole milliseconds, rounded up.

    Raises:
        ValueError: It is negative.
    """
    if duration is None:
        return None
    span = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    if span < timedelta(0):
        raise ValueError(f"a duration is not negative, got {duration!r}")
    return -(-span // _MILLISECOND)
