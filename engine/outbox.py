"""The engine's side of the relay.

Rows go to the publisher once they have committed, confirms come back into groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from odin.core.decide import OutboxTask
from odin.core.wire import TaskEntry
from odin.runtime.clock import Clock, pause

from .shards import Shards
from .store.group import OutboxDelay
from .store.values import OutboxRow as StoredRow
from .term import Term

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
SWEEP_ROWS_MAX: Final = 5_000
_decode = msgspec.msgpack.Decoder(TaskEntry).decode
MakeRow = Callable[..., Any]


class OutboxReads(Protocol):
    """The store as the outbox sees it."""

    async def outbox_all(
        self, shard_id: int, *, after: int = 0, limit: int = 10_000
    ) -> list[StoredRow]:
        """Return the rows of a shard, by id."""
        ...

    async def outbox_due(self, shard_ids: Sequence[int], us: int, limit: int) -> list[StoredRow]:
        """Return rows that may be published again."""
        ...


class Publishes(Protocol):
    """The relay's publisher, as the outbox sees it."""

    def offer(self, rows: Sequence[Any]) -> None:
        """Take rows that have committed."""
        ...

    def term_over(self, shard_id: int, range_id: int) -> None:
        """Forget the rows of this term."""
        ...


class Outbox:
    """Carries rows from groups to the publisher, and confirms from the publisher to groups.

    Args:
        shards: The terms of this node.
        reads: The store.
        make_row: The relay's row type.
    """

    def __init__(self, shards: Shards, reads: OutboxReads, make_row: MakeRow) -> None:
        self._shards = shards
        self._reads = reads
        self._make_row = make_row
        self._written: list[Any] = []
        self._is_offering = False
        self.publisher: Publishes | None = None

    def written(self, term: Term, outbox_id: int, task: OutboxTask) -> None:
        """A row has committed: publish it, with all others of this turn of the loop."""
        self._written.append(
            self._make_row(
                shard_id=term.shard_id,
                outbox_id=outbox_id,
                range_id=term.range_id,
                destination=task.destination,
                entry=task.entry,
                publish_count=0,
                created_us=self._shards.now_us(),
            )
        )
        if not self._is_offering:
            self._is_offering = True
            asyncio.get_running_loop().call_soon(self._offer)

    def _offer(self) -> None:
        self._is_offering = False
        rows, self._written = self._written, []
        if self.publisher is not None:
            self.publisher.offer(rows)

    # --- what the publisher calls -----------------------------------------------------------------

    def confirmed(self, shard_id: int, range_id: int, outbox_ids: Sequence[int]) -> None:
        """The broker has these: delete their rows with the next group of the term."""
        term = self._shards.terms.get(shard_id)
        if term is not None and term.range_id == range_id:
            term.confirmed(list(outbox_ids))

    def delayed(
        self,
        shard_id: int,
        range_id: int,
        outbox_id: int,
        publish_count: int,
        next_publish_us: int,
    ) -> None:
        """A row has no confirm: note when it may be published again."""
        term = self._shards.terms.get(shard_id)
        if term is not None and term.range_id == range_id and not term.is_over:
            delay = OutboxDelay(shard_id, outbox_id, publish_count, next_publish_us)
            self._shards.lane_of(shard_id).delay_outbox(range_id, delay)

    # --- what the sweep reads ---------------------------------------------------------------------

    async def read_all(self, shard_id: int) -> list[Any]:
        """Return every row of a shard that this node owns, and note what they are about.

        Raises:
            OdinError: The database did not answer.
        """
        term = self._shards.terms.get(shard_id)
        if term is None:
            return []
        rows: list[Any] = []
        after = 0
        while page := await self._reads.outbox_all(shard_id, after=after):
            rows.extend(self._rows(page))
            after = page[-1].outbox_id
        for row in rows:
            term.covered.add((row.entry.run_id, row.entry.kind, row.entry.number))
        term.swept.set()
        return rows

    async def read_due(self, shard_ids: Sequence[int], now_us: int) -> list[Any]:
        """Return rows of these shards that may be published again."""
        return self._rows(await self._reads.outbox_due(shard_ids, now_us, SWEEP_ROWS_MAX))

    def _rows(self, stored: Sequence[StoredRow]) -> list[Any]:
        rows: list[Any] = []
        for row in stored:
            term = self._shards.terms.get(row.shard_id)
            if term is None:
                continue
            try:
                entry = _decode(row.body)
            except msgspec.DecodeError:
                log.exception(
                    "damaged outbox row", extra={"shard": row.shard_id, "id": row.outbox_id}
                )
                continue
            rows.append(
                self._make_row(
                    shard_id=row.shard_id,
                    outbox_id=row.outbox_id,
                    range_id=term.range_id,
                    destination=row.destination,
                    entry=entry,
                    publish_count=row.publish_count,
                    created_us=self._shards.now_us(),
                )
            )
        return rows

    async def flush(self, stop: asyncio.Event) -> None:
        """Commit confirms that no decision has carried along, once a second."""
        clock: Clock = self._shards.clock
        while not await pause(clock, stop, FLUSH_SECONDS):
            self._shards.flush()
