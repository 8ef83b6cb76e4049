"""Statistics of measurements. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import Final

import msgspec

EDGE_STEPS: Final = 100


class Spread(msgspec.Struct, frozen=True):
    """What repetitions of one measurement gave."""

    median: float
    min: float
    max: float


class Latencies(msgspec.Struct, frozen=True):
    """Percentiles of the time from start to result, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def spread(values: Sequence[float]) -> Spread:
    """Return median, smallest and largest.

    Raises:
        ValueError: There is no value.
    """
    if not values:
        raise ValueError("no values have no median")
    return Spread(median(values), min(values), max(values))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of 100 values do not exceed.

    It is always one of the values: nothing is interpolated, so that a p99 was really seen.

    Args:
        ordered: The values in ascending order.
        percent: Above 0, at most 100.

    Raises:
        ValueError: There is no value, or the percentage is out of range.
    """
    if not ordered:
        raise ValueError("no values have no percentiles")
    if not 0 < percent <= 100:  # noqa: PLR2004 - a hundred percent
        raise ValueError(f"a percentage is above 0 and at most 100, got {percent}")
    return ordered[ceil(len(ordered) * percent / 100) - 1]


def latencies(seconds: Sequence[float]) -> Latencies:
    """Return the percentiles of durations that were measured in seconds.

    Raises:
        ValueError: There is none.
    """
    ordered = sorted(one * 1_000 for one in seconds)
    return Latencies(
        percentile(ordered, 50), percentile(ordered, 95), percentile(ordered, 99), ordered[-1]
    )


def edge_step_ms(completed_us: Sequence[int], edge: int = EDGE_STEPS) -> tuple[float, float]:
    """Return the mean milliseconds per step among the first and among the last steps of a run.

    Args:
        completed_us: When each step completed, in order, in microseconds.
        edge: How many steps make an edge.

    Raises:
        ValueError: The run is shorter than two edges.
    """
    if len(completed_us) < 2 * edge:
        raise ValueError(f"{len(completed_us)} steps are less than two edges of {edge}")
    first = completed_us[edge - 1] - completed_us[0]
    last = completed_us[-1] - completed_us[-edge]
    return first / (edge - 1) / 1_000, last / (edge - 1) / 1_000
