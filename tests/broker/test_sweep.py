"""The sweep: rows that the publisher does not hold are found, whatever the readers throw."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from relay.publisher import Publisher
from relay.sweep import SWEEP_SECONDS, Sweeper
from relay.transport import OutboxRow

from .support import EngineEnd, ManualClock, MemoryTransport, row, running, settle

DUE_MAX = 500


class Outbox(EngineEnd):
    """The outbox table in memory: a confirmed row is gone, a delayed one due later."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, OutboxRow] = {}
        self.due_us: dict[int, int] = {}
        self.deleting = True
        self.failures = 0
        self.reads: list[str] = []

    def insert(self, *rows: OutboxRow) -> None:
        for one in rows:
            self.rows[one.outbox_id] = one
            self.due_us[one.outbox_id] = 0

    async def read_all(self, shard_id: int) -> Sequence[OutboxRow]:
        self._read("all")
        return [one for one in self.rows.values() if one.shard_id == shard_id]

    async def read_due(self, shard_ids: Sequence[int], now_us: int) -> Sequence[OutboxRow]:
        self._read("due")
        self._apply()
        due = [
            one
            for one in self.rows.values()
            if one.shard_id in shard_ids and self.due_us[one.outbox_id] <= now_us
        ]
        return due[:DUE_MAX]

    def _read(self, what: str) -> None:
        self.reads.append(what)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")

    def _apply(self) -> None:
        for outbox_id, _, next_us in self.delayed:
            self.due_us[outbox_id] = next_us
        if self.deleting:
            for outbox_id in self.confirmed:
                self.rows.pop(outbox_id, None)


class Bench:
    def __init__(self, rows_max: int) -> None:
        self.outbox = Outbox()
        self.transport = MemoryTransport(confirm_at_once=True)
        self.clock = ManualClock()
        self.publisher = Publisher(
            self.transport, self.outbox.callables, self.clock, rows_max=rows_max
        )
        self.sweeper = Sweeper(
            self.publisher,
            self.outbox.read_all,
            self.outbox.read_due,
            lambda: self.outbox.now_us,
            self.clock,
        )

    async def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            await self.clock.advance(0.5)
            self.outbox.now_us = round(self.clock.boottime() * 1e6)


@asynccontextmanager
async def benched(rows_max: int = 20_000) -> AsyncIterator[Bench]:
    bench = Bench(rows_max)
    async with running(bench.publisher.run, bench.sweeper.run) as stop:
        await settle()
        yield bench
        stop.set()
        await bench.clock.advance(SWEEP_SECONDS)


async def test_the_rows_that_a_term_inherits_are_published_when_it_begins() -> None:
    async with benched() as bench:
        bench.outbox.insert(row(1, shard_id=1), row(2, shard_id=2), row(3, shard_id=3))
        bench.sweeper.term_began(1)
        bench.sweeper.term_began(3)
        await settle()
        assert sorted(bench.outbox.confirmed) == [1, 3]


async def test_every_10_s_rows_that_nobody_offered_are_found() -> None:
    async with benched() as bench:
        bench.sweeper.term_began(1)
        await settle()
        bench.outbox.insert(row(1))
        await bench.advance(SWEEP_SECONDS - 1)
        assert bench.outbox.confirmed == []
        await bench.advance(2)
        assert bench.outbox.confirmed == [1]


async def test_shards_whose_term_is_over_are_swept_no_more() -> None:
    async with benched() as bench:
        bench.sweeper.term_began(1)
        bench.sweeper.term_began(2)
        await settle()
        bench.sweeper.term_over(1)
        bench.outbox.insert(row(1, shard_id=1), row(2, shard_id=2))
        await bench.advance(SWEEP_SECONDS + 1)
        assert bench.outbox.confirmed == [2]


async def test_a_confirmed_row_that_is_not_deleted_yet_is_not_published_again_by_the_sweep() -> (
    None
):
    async with benched() as bench:
        bench.outbox.deleting = False
        bench.sweeper.term_began(1)
        await bench.advance(SWEEP_SECONDS - 1)
        bench.outbox.insert(row(1))
        bench.publisher.offer([row(1)])
        await bench.advance(2)
        assert bench.outbox.reads.count("due") == 1
        assert bench.transport.messages == [("w:q", [1])]
        # Two sweeps later it counts as forgotten: level-triggered.
        await bench.advance(2 * SWEEP_SECONDS)
        assert bench.transport.messages == [("w:q", [1])] * 2


async def test_a_reader_that_fails_is_asked_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with benched() as bench:
        bench.outbox.failures = 3
        bench.outbox.insert(row(1))
        bench.sweeper.term_began(1)
        await bench.advance(5)
        assert bench.outbox.confirmed == [1]
        assert caplog.text.count("sweep failed") == 1


async def test_what_found_no_room_is_published_as_soon_as_there_is_some() -> None:
    async with benched(rows_max=100) as bench:
        rows = [row(number) for number in range(400)]
        bench.outbox.insert(*rows)
        bench.sweeper.term_began(1)
        await bench.advance(1)
        # Without the publisher's word this would take a sweep of 10 s for every hundred.
        assert sorted(bench.outbox.confirmed) == list(range(400))


async def test_a_delayed_row_is_the_publisher_s_and_not_the_sweep_s() -> None:
    async with benched() as bench:
        bench.transport.failing["w:q"] = True
        bench.outbox.insert(row(1))
        bench.sweeper.term_began(1)
        await bench.advance(2 * SWEEP_SECONDS)
        tries = len(bench.transport.messages)
        assert tries == bench.publisher.counters.published == len(bench.outbox.delayed)
        assert [count for _, count, _ in bench.outbox.delayed] == list(range(1, tries + 1))
