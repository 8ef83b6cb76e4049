"""Which rows the relay holds, by row and by term, within a bound. No I/O, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .departure import Departure, Held

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .transport import OutboxRow

ROWS_MAX: Final = 20_000
_DONE_MAX: Final = 20_000


class Book:
    """The rows in memory without a confirm, and the departures that they go by."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self.rows_max = rows_max
        self.departures: dict[str, Departure] = {}
        self._terms: dict[tuple[int, int], dict[int, Held]] = {}
        self._over: dict[int, int] = {}
        # Confirmed of late: their rows may not be deleted yet, a sweep must not publish them again.
        self._done: set[tuple[int, int, int]] = set()
        self._done_before: set[tuple[int, int, int]] = set()
        self.count = 0

    def __iter__(self) -> Iterator[Held]:
        return (held for term in self._terms.values() for held in term.values())

    @property
    def full(self) -> bool:
        """Whether there is no room for another row."""
        return self.count >= self.rows_max

    def is_known(self, row: OutboxRow) -> bool:
        """Return whether nothing is to be done for the row: held, just confirmed, or term over."""
        if row.outbox_id in self._terms.get((row.shard_id, row.range_id), ()):
            return True
        if row.range_id <= self._over.get(row.shard_id, 0):
            return True
        done = (row.shard_id, row.range_id, row.outbox_id)
        return done in self._done or done in self._done_before

    def hold(self, row: OutboxRow) -> None:
        """Take a row that is not known."""
        departure = self.departures.get(row.destination)
        if departure is None:
            departure = self.departures[row.destination] = Departure(row.destination)
        held = Held(row, departure)
        self._terms.setdefault((row.shard_id, row.range_id), {})[row.outbox_id] = held
        departure.add(held)
        departure.unconfirmed += 1
        self.count += 1

    def confirm(self, pack: Iterable[Held]) -> dict[tuple[int, int], list[int]]:
        """Let go of rows that are confirmed; return outbox ids by (shard_id, range_id).

        Rows of a term that is over are left out.
        """
        found: dict[tuple[int, int], list[int]] = {}
        for held in pack:
            if not held.alive:
                continue
            row = held.row
            key = (row.shard_id, row.range_id)
            term = self._terms[key]
            del term[row.outbox_id]
            if not term:
                del self._terms[key]
            self._let_go(held)
            self._done.add((row.shard_id, row.range_id, row.outbox_id))
            found.setdefault(key, []).append(row.outbox_id)
        if len(self._done) > _DONE_MAX:
            self.age()
        return found

    def drop_term(self, shard_id: int, range_id: int) -> None:
        """Let go of every row of a term, and take none of it or of an older one from now on."""
        self._over[shard_id] = max(range_id, self._over.get(shard_id, 0))
        for held in self._terms.pop((shard_id, range_id), {}).values():
            self._let_go(held)

    def age(self) -> None:
        """Forget what was confirmed before the last call: by now it should be deleted."""
        self._done_before, self._done = self._done, set()

    def _let_go(self, held: Held) -> None:
        held.alive = False
        held.departure.unconfirmed -= 1
        self.count -= 1
