"""The rows of one destination on their way, and when the next of them may go. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from odin.core.backoff import doubled
from odin.core.tasks import pack_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from .transport import OutboxRow

SPACING_FIRST_MS: Final = 1_000
SPACING_MS_MAX: Final = 60_000
# A destination that failed is probed with one message at a time, then two, four, ... as they get
# through, so that a backlog neither fills the window of the others nor is rewritten row by row.
_PAUSE_FIRST_MS: Final = 200
_PAUSE_MS_MAX: Final = 5_000
# Of about 100 messages on their way: a queue that does not answer must leave room for others.
DEPARTURE_OUTSTANDING_MAX: Final = 64


def spacing_ms(publish_count: int) -> int:
    """Return the wait after the n-th publish without a confirm: 1 s, doubling, at most 60 s."""
    spacing = SPACING_FIRST_MS
    for _ in range(min(publish_count, 8) - 1):
        spacing = doubled(spacing, SPACING_MS_MAX)
    return spacing


class Held:
    """A row in memory: ready, on its way, or waiting to be tried again.

    `noted_us` is the time of the next publish as the engine was told it last, 0 if it was not.
    """

    __slots__ = ("alive", "departure", "noted_us", "publish_count", "row", "surely_unsent")

    def __init__(self, row: OutboxRow, departure: Departure) -> None:
        self.row = row
        self.departure = departure
        self.publish_count = row.publish_count
        self.surely_unsent = True
        self.noted_us = 0
        self.alive = True


class Departure:
    """One destination. Rows that are not alive any more are skipped when their turn comes."""

    def __init__(self, destination: str) -> None:
        self.destination = destination
        self.in_flight = 0
        self.unconfirmed = 0
        self.failures = 0
        self._window = DEPARTURE_OUTSTANDING_MAX
        self._paused_until = 0.0
        self._ready: deque[Held] = deque()
        self._later: list[tuple[float, int, Held]] = []
        self._numbers = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing left to do for this destination."""
        return not (self._ready or self._later or self.in_flight)

    def add(self, held: Held) -> None:
        """Take a row that may go at once."""
        self._ready.append(held)

    def postpone(self, held: Held, due: float) -> None:
        """Keep a row for another try at `due`."""
        self._numbers += 1
        heappush(self._later, (due, self._numbers, held))

    def take(self, now: float, workers: Callable[[str], int]) -> list[Held]:
        """Return the rows of the message that may go now, none if none may.

        Args:
            now: Seconds by the clock that measures waits.
            workers: How many workers serve a destination, which the size of a message hangs on.
        """
        while self._later and self._later[0][0] <= now:
            self._ready.append(heappop(self._later)[2])
        if not self._ready or now < self._paused_until or self.in_flight >= self._window:
            return []
        self._paused_until = 0.0
        count = pack_size(self.unconfirmed, workers(self.destination))
        taken: list[Held] = []
        while self._ready and len(taken) < count:
            held = self._ready.popleft()
            if held.alive:
                taken.append(held)
        return taken

    def next_due(self) -> float | None:
        """Return when a row may go that cannot now; None if nothing here waits for time."""
        due = [self._later[0][0]] if self._later else []
        if self._ready and self._paused_until:
            due.append(self._paused_until)
        return min(due, default=None)

    def failed(self, now: float) -> None:
        """A message did not get through: pause, longer each time in a row, then probe."""
        self._window = 1
        if now < self._paused_until:
            return  # one of a burst that was sent before the pause began
        self._paused_until = now + min(_PAUSE_FIRST_MS * 2**self.failures, _PAUSE_MS_MAX) / 1_000
        self.failures = min(self.failures + 1, 8)

    def succeeded(self) -> None:
        """A message got through: what surely was not sent before need not wait any longer."""
        self._window = min(2 * self._window, DEPARTURE_OUTSTANDING_MAX)
        if self.failures:
            self.failures = 0
            self.wake()

    def wake(self) -> None:
        """What was in the way may be gone: end the pause, release the rows that were not sent."""
        self._paused_until = 0.0
        later, self._later = self._later, []
        for due, number, held in sorted(later, key=lambda entry: entry[1]):
            if held.surely_unsent:
                self._ready.append(held)
            else:
                heappush(self._later, (due, number, held))
