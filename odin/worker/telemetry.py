"""What a worker counts. The numbers go wherever the embedding process wants them."""

from __future__ import annotations

from collections import Counter
from typing import Protocol


class WorkerTelemetry(Protocol):
    """Takes a worker's numbers; called on its event loop, so it must return at once."""

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to the total `name`."""
        ...

    def gauge(self, name: str, value: float) -> None:
        """Set the present value of `name`."""
        ...


class Tally:
    """Keeps the numbers in memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to the total `name`."""
        self.counts[name] += n

    def gauge(self, name: str, value: float) -> None:
        """Set the present value of `name`."""
        self.gauges[name] = value
