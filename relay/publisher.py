"""Publishes rows right after their group has committed, and again until they are confirmed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from odin.core.tasks import is_task_destination
from odin.errors import NotPublishedError

from .book import ROWS_MAX, Book
from .departure import Departure, Held, spacing_ms

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

    from .transport import OutboxRow, Transport

OUTSTANDING_MAX: Final = 100
_DRAIN_SECONDS: Final = 2.0
_TICK_SECONDS_MIN: Final = 0.02
_TICK_SECONDS_MAX: Final = 0.2
_MISSES_BEFORE_UNHEALTHY: Final = 3
_WARN_SECONDS: Final = 60.0

Confirmed: TypeAlias = Callable[[int, int, Sequence[int]], None]
"""(shard_id, range_id, outbox_ids): the rows may be deleted with a next group of that term."""
Delayed: TypeAlias = Callable[[int, int, int, int, int], None]
"""(shard_id, range_id, outbox_id, publish_count, next_publish_us): keep the row, note this."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counters:
    """What has happened to rows (and messages) since the start; each only grows."""

    offered: int = 0
    refused_full: int = 0
    messages: int = 0
    published: int = 0
    confirmed: int = 0
    returned: int = 0
    unanswered: int = 0
    delayed: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class Callables:
    """What the engine hands in; each returns at once.

    Args:
        confirmed: Rows that may be deleted.
        delayed: A row that has no confirm yet.
        workers: How many workers on the engine's links serve a destination.
        now_us: The cluster's time.
    """

    confirmed: Confirmed
    delayed: Delayed
    workers: Callable[[str], int]
    now_us: Callable[[], int]


class Publisher:
    """Holds rows of the engine's shards until they are confirmed, within a bound, and sends them.

    Args:
        transport: Where messages go.
        engine: What the engine hands in.
        clock: Measures the waits.
        rows_max: Rows in memory at most; the sweep finds the others.
    """

    def __init__(
        self,
        transport: Transport,
        engine: Callables,
        clock: Clock,
        *,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._transport = transport
        self._engine = engine
        self._clock = clock
        self._book = Book(rows_max)
        self._in_flight = 0
        self._misses_in_row = 0
        self._warn_at = 0.0
        self._overflowed = False
        self._complained: set[str] = set()
        self._work = asyncio.Event()
        self._delays = asyncio.Event()
        self.room = asyncio.Event()
        """Set when there is room again after rows were left out; whoever waits for it clears it."""
        self.counters = Counters()

    # --- what the engine calls -------------------------------------------------------------------

    def offer(self, rows: Sequence[OutboxRow]) -> None:
        """Take rows that have committed. Those known already, or without room, are left alone."""
        book = self._book
        for row in rows:
            if not is_task_destination(row.destination) or book.is_known(row):
                continue
            if book.full:
                self.counters.refused_full += 1
                self._overflowed = True
                continue
            self.counters.offered += 1
            book.hold(row)
        self._work.set()

    def term_over(self, shard_id: int, range_id: int) -> None:
        """Forget every row of this term; confirms for those on their way will be ignored."""
        self._book.drop_term(shard_id, range_id)
        self._room_again()
        self._work.set()

    def wake(self, destination: str | None = None) -> None:
        """What was in the way may be gone (connected, free slots): try this destination, or all."""
        for departure in self._book.departures.values():
            if destination is None or departure.destination == destination:
                departure.wake()
        self._work.set()

    def age(self) -> None:
        """Called by each sweep: what was confirmed before the last one may be offered again."""
        self._book.age()

    # --- numbers ---------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Rows in memory without a confirm."""
        return self._book.count

    @property
    def in_flight(self) -> int:
        """Messages on their way."""
        return self._in_flight

    @property
    def full(self) -> bool:
        """Whether there is no room for another row."""
        return self._book.full

    @property
    def healthy(self) -> bool:
        """Whether messages get through: not several failures in a row since the last confirm."""
        return self._misses_in_row < _MISSES_BEFORE_UNHEALTHY

    def depth_of(self, destination: str) -> int:
        """Return the rows of one destination in memory without a confirm."""
        departure = self._book.departures.get(destination)
        return departure.unconfirmed if departure else 0

    def oldest_age_ms(self, is_counted: Callable[[str], bool] | None = None) -> int:
        """Return the age of the oldest row in memory, 0 if there is none.

        Args:
            is_counted: Whether rows of a destination count; all do if it is not given.
        """
        asked = {held.row.destination for held in self._book}
        counted = {one for one in asked if is_counted is None or is_counted(one)}
        created = (held.row.created_us for held in self._book if held.row.destination in counted)
        oldest = min(created, default=None)
        return 0 if oldest is None else max(0, self._engine.now_us() - oldest) // 1_000

    # --- the loop --------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set, then wait up to 2 s for confirms; what is left stays a row."""
        async with asyncio.TaskGroup() as helpers:
            ticking = helpers.create_task(self._tick(), name="relay tick")
            stopping = helpers.create_task(self._end_with(stop), name="relay stop")
            try:
                async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as sending:
                    while not stop.is_set():
                        self._dispatch(sending)
                        await self._work.wait()
                        self._work.clear()
                    deadline.reschedule(asyncio.get_running_loop().time() + _DRAIN_SECONDS)
            except TimeoutError:
                log.info("stopped with messages on their way", extra={"in_flight": self._in_flight})
            ticking.cancel()
            stopping.cancel()

    async def _end_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._work.set()

    async def _tick(self) -> None:
        """Wake the loop when the time of a row or a destination has come; asleep if none waits."""
        while True:
            await self._delays.wait()
            dues = [
                d for one in self._book.departures.values() if (d := one.next_due()) is not None
            ]
            if not dues:
                self._delays.clear()
                continue
            wait = min(dues) - self._clock.boottime()
            if wait <= 0:
                self._work.set()
            await self._clock.sleep(min(max(wait, _TICK_SECONDS_MIN), _TICK_SECONDS_MAX))

    def _dispatch(self, sending: asyncio.TaskGroup) -> None:
        """Send one message per destination in turn, as long as there are rows and places."""
        now = self._clock.boottime()
        departures = self._book.departures
        waiting = list(departures.values())
        while waiting:
            served = []
            for departure in waiting:
                if self._in_flight >= OUTSTANDING_MAX:
                    return
                if pack := departure.take(now, self._engine.workers):
                    # Whoever was served last comes last the next time.
                    departures[departure.destination] = departures.pop(departure.destination)
                    self._in_flight += 1
                    departure.in_flight += 1
                    sending.create_task(self._send(departure, pack), name="relay message")
                    served.append(departure)
                elif departure.empty:
                    del departures[departure.destination]
            waiting = served

    async def _send(self, departure: Departure, pack: list[Held]) -> None:
        self.counters.messages += 1
        self.counters.published += len(pack)
        try:
            await self._transport.publish(departure.destination, [held.row.entry for held in pack])
        except NotPublishedError as error:
            self._not_confirmed(departure, pack, error)
        except Exception as error:  # noqa: BLE001 - a fault in a transport ends not the whole relay
            self._complain("transport", error)
            self._not_confirmed(departure, pack, NotPublishedError(str(error), maybe_sent=True))
        else:
            self._complained.discard("transport")
            self._confirmed(departure, pack)
        finally:
            self._in_flight -= 1
            departure.in_flight -= 1
            self._work.set()

    def _confirmed(self, departure: Departure, pack: list[Held]) -> None:
        self._misses_in_row = 0
        departure.succeeded()
        confirmed_count = 0
        for (shard_id, range_id), outbox_ids in self._book.confirm(pack).items():
            confirmed_count += len(outbox_ids)
            self._call(self._engine.confirmed, shard_id, range_id, outbox_ids)
        self.counters.confirmed += confirmed_count
        self.counters.ignored += len(pack) - confirmed_count
        self._room_again()

    def _not_confirmed(
        self, departure: Departure, pack: list[Held], error: NotPublishedError
    ) -> None:
        self._misses_in_row += 1
        now, now_us = self._clock.boottime(), self._engine.now_us()
        departure.failed(now)
        self._warn(departure, error, now)
        for held in pack:
            if not held.alive:
                self.counters.ignored += 1
                continue
            if error.maybe_sent:
                self.counters.unanswered += 1
            else:
                self.counters.returned += 1
            held.surely_unsent = not error.maybe_sent
            if error.maybe_sent or now_us >= held.noted_us:
                self._note(held, now_us)
            # Else it was tried before its time, in vain, and never left: nothing to write down.
            departure.postpone(held, now + (held.noted_us - now_us) / 1_000_000)
        self._delays.set()

    def _note(self, held: Held, now_us: int) -> None:
        """Have the engine write down when the row is published again."""
        row = held.row
        held.publish_count += 1
        held.noted_us = now_us + spacing_ms(held.publish_count) * 1_000
        self.counters.delayed += 1
        self._call(
            self._engine.delayed,
            row.shard_id, row.range_id, row.outbox_id, held.publish_count, held.noted_us,
        )  # fmt: skip

    def _warn(self, departure: Departure, error: NotPublishedError, now: float) -> None:
        """Say that tasks do not get through, once a minute while that lasts."""
        if not self.healthy and now >= self._warn_at:
            self._warn_at = now + _WARN_SECONDS
            log.warning(
                "tasks do not get through",
                extra={
                    "destination": departure.destination,
                    "detail": str(error),
                    "depth": self.depth,
                },
            )

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Tell the engine; should that fail, the row still is in its table and a sweep finds it."""
        name = getattr(function, "__name__", "callable")
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - a fault in one shard ends not the whole relay
            self._complain(name, error)
        else:
            self._complained.discard(name)

    def _complain(self, what: str, error: Exception) -> None:
        """Log a failure once, until it has gone."""
        if what not in self._complained:
            self._complained.add(what)
            log.error("relay failed", extra={"part": what}, exc_info=error)

    def _room_again(self) -> None:
        if self._overflowed and self._book.count <= self._book.rows_max // 2:
            self._overflowed = False
            self.room.set()
