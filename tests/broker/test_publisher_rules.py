"""The publisher's rules, with the answers and the time in the test's hand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from relay.departure import DEPARTURE_OUTSTANDING_MAX
from relay.publisher import Publisher

from .support import EngineEnd, ManualClock, MemoryTransport, row, running, settle, until

SECOND_US = 1_000_000


class Bench:
    """A running publisher and everything around it."""

    def __init__(self, *, workers: int = 1, rows_max: int = 20_000, auto: bool = False) -> None:
        self.engine = EngineEnd(workers)
        self.transport = MemoryTransport(confirm_at_once=auto)
        self.clock = ManualClock()
        self.publisher = Publisher(
            self.transport, self.engine.callables, self.clock, rows_max=rows_max
        )


@asynccontextmanager
async def benched(
    *, workers: int = 1, rows_max: int = 20_000, auto: bool = False
) -> AsyncIterator[Bench]:
    bench = Bench(workers=workers, rows_max=rows_max, auto=auto)
    async with running(bench.publisher.run) as stop:
        await settle()
        yield bench
        bench.transport.confirm_all()
        stop.set()


async def test_a_confirm_of_a_term_that_is_over_is_ignored() -> None:
    async with benched() as bench:
        bench.publisher.offer([row(1, range_id=5), row(2, shard_id=2, range_id=5)])
        await settle()
        bench.publisher.term_over(1, 5)
        bench.transport.confirm_all()
        await settle()
        assert bench.engine.confirmed_by_term == [(2, 5, (2,))]
        assert bench.publisher.counters.ignored == 1
        assert bench.publisher.depth == 0


async def test_rows_of_a_term_that_is_over_are_taken_no_more_those_of_the_next_are() -> None:
    async with benched() as bench:
        bench.publisher.offer([row(1, range_id=5)])
        await settle()
        bench.publisher.term_over(1, 5)
        bench.publisher.offer([row(2, range_id=5), row(1, range_id=6)])
        await settle()
        bench.transport.confirm_all()
        await settle()
        # Row 1 went out in both terms; the confirm that counts is the one of the term of now.
        assert bench.engine.confirmed_by_term == [(1, 6, (1,))]


async def test_rows_that_still_wait_when_their_term_ends_never_go_out() -> None:
    async with benched(workers=1_000) as bench:
        bench.publisher.offer([row(number, range_id=5) for number in range(200)])
        await settle()
        sent = len(bench.transport.messages)
        bench.publisher.term_over(1, 5)
        bench.transport.confirm_all()
        await settle()
        assert 0 < sent == len(bench.transport.messages) < 200


async def test_a_row_not_confirmed_is_noted_and_tried_after_1_s_doubling_to_60_s() -> None:
    async with benched() as bench:
        bench.transport.failing["w:q"] = True
        bench.publisher.offer([row(1)])
        for _ in range(3_000):
            bench.engine.now_us = round(bench.clock.boottime() * SECOND_US)
            await bench.clock.advance(0.1)
        spacings = []
        for number, (outbox_id, publish_count, next_us) in enumerate(bench.engine.delayed, 1):
            assert (outbox_id, publish_count) == (1, number)
            spacings.append(next_us)
        waits = [later - earlier for earlier, later in pairwise(spacings)]
        seconds = [round(wait / SECOND_US) for wait in waits]
        assert seconds[:7] == pytest.approx([2, 4, 8, 16, 32, 60, 60], abs=1)


async def test_a_row_from_a_sweep_goes_on_with_its_own_count() -> None:
    async with benched() as bench:
        bench.transport.failing["w:q"] = False
        bench.publisher.offer([row(1, publish_count=3)])
        await settle()
        assert bench.engine.delayed == [(1, 4, 8 * SECOND_US)]


async def test_behind_a_destination_that_fails_one_message_at_a_time_probes() -> None:
    async with benched(workers=1_000) as bench:
        bench.transport.failing["w:q"] = False
        bench.publisher.offer([row(number) for number in range(1_000)])
        await settle()
        first_burst = len(bench.transport.messages)
        assert first_burst <= DEPARTURE_OUTSTANDING_MAX
        await bench.clock.advance(10)
        # 10 s, pauses of 0.2, 0.4, ... 5 s: some probes, and not 936 rows rewritten.
        assert 1 <= len(bench.transport.messages) - first_burst <= 10
        del bench.transport.failing["w:q"]
        bench.transport.confirm_at_once = True
        await bench.clock.advance(5)
        assert len(bench.engine.confirmed) == 1_000


async def test_a_failing_destination_holds_up_no_other() -> None:
    async with benched(workers=1_000, auto=True) as bench:
        bench.transport.failing["w:bad"] = True
        bench.publisher.offer([row(number, "w:bad") for number in range(1_000)])
        bench.publisher.offer([row(number, "w:good") for number in range(1_000, 2_000)])
        await until(lambda: len(bench.engine.confirmed) == 1_000)


async def test_a_destination_that_does_not_answer_leaves_places_in_the_window() -> None:
    async with benched(workers=1_000) as bench:
        bench.publisher.offer([row(number, "w:slow") for number in range(1_000)])
        await settle()
        assert bench.publisher.in_flight == DEPARTURE_OUTSTANDING_MAX
        bench.publisher.offer([row(number, "w:good") for number in range(1_000, 1_200)])
        await settle()
        assert bench.publisher.in_flight == 100
        assert len(bench.transport.sent("w:good")) == 100 - DEPARTURE_OUTSTANDING_MAX


async def test_destinations_are_served_in_turn() -> None:
    async with benched(workers=1_000) as bench:
        rows = [row(number, f"w:{number % 4}") for number in range(400)]
        bench.publisher.offer(sorted(rows, key=lambda one: one.destination))
        await settle()
        assert [len(bench.transport.sent(f"w:{queue}")) for queue in range(4)] == [25] * 4
        for _ in range(40):  # places in the window that come free one by one go round as well
            bench.transport.waiting.pop().set_result(None)
            await settle()
        assert [len(bench.transport.sent(f"w:{queue}")) for queue in range(4)] == [35] * 4


async def test_workflow_and_activity_tasks_never_share_a_message() -> None:
    async with benched() as bench:
        rows = [row(number, "aw"[number % 2] + ":q") for number in range(256)]
        bench.publisher.offer(rows)
        await settle()
        for destination, numbers in bench.transport.messages:
            assert {"aw"[number % 2] for number in numbers} == {destination[0]}
            assert len(numbers) <= 32


async def test_a_wake_releases_what_surely_was_not_sent_and_nothing_else() -> None:
    async with benched() as bench:
        bench.transport.failing = {"w:unsent": False, "w:unknown": True}
        bench.publisher.offer([row(1, "w:unsent"), row(2, "w:unknown")])
        await settle()
        bench.transport.failing.clear()
        bench.publisher.wake()
        await settle()
        bench.transport.confirm_all()
        await settle()
        assert bench.engine.confirmed == [1]
        await bench.clock.advance(1.1)
        bench.transport.confirm_all()
        await settle()
        assert bench.engine.confirmed == [1, 2]


async def test_memory_is_bounded_and_room_is_announced() -> None:
    async with benched(rows_max=100) as bench:
        bench.publisher.offer([row(number) for number in range(150)])
        assert bench.publisher.full
        assert bench.publisher.counters.refused_full == 50
        await settle()
        assert not bench.publisher.room.is_set()
        while bench.transport.waiting:
            bench.transport.confirm_all()
            await settle()
        assert bench.publisher.room.is_set()
        assert sorted(bench.engine.confirmed) == list(range(100))


async def test_a_row_that_is_held_or_was_just_confirmed_is_not_published_again() -> None:
    async with benched() as bench:
        bench.publisher.offer([row(1)])
        await settle()
        bench.publisher.offer([row(1)])
        await settle()
        bench.transport.confirm_all()
        await settle()
        bench.publisher.offer([row(1)])
        await settle()
        assert bench.transport.messages == [("w:q", [1])]
        bench.publisher.age()
        bench.publisher.age()
        bench.publisher.offer([row(1)])  # two sweeps later it still is there: it was not deleted
        await settle()
        assert bench.transport.messages == [("w:q", [1])] * 2


async def test_rows_for_other_shards_are_left_alone() -> None:
    async with benched() as bench:
        bench.publisher.offer([row(1, "shard:7")])
        assert bench.publisher.depth == 0


async def test_what_the_engine_s_callables_raise_ends_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(auto=True)

    def raising(_shard_id: int, _range_id: int, _outbox_ids: Sequence[int]) -> None:
        raise RuntimeError("the engine's fault")

    engine = bench.engine.callables
    publisher = Publisher(
        bench.transport,
        type(engine)(raising, engine.delayed, engine.workers, engine.now_us),
        bench.clock,
    )
    async with running(publisher.run):
        for number in range(5):
            publisher.offer([row(number)])
            await until(lambda: publisher.depth == 0)
    assert publisher.counters.confirmed == 5
    assert caplog.text.count("relay failed") == 1


async def test_the_numbers_say_how_much_waits_and_for_how_long() -> None:
    async with benched() as bench:
        bench.engine.now_us = 5 * SECOND_US
        assert bench.publisher.oldest_age_ms() == 0
        bench.publisher.offer([row(1), row(2, "a:q")])
        assert (bench.publisher.depth, bench.publisher.depth_of("a:q")) == (2, 1)
        assert bench.publisher.oldest_age_ms() == 5_000
        await settle()
        assert bench.publisher.in_flight == 2


async def test_health_follows_whether_messages_get_through() -> None:
    async with benched(auto=True) as bench:
        bench.transport.failing["w:q"] = True
        bench.publisher.offer([row(1)])
        await bench.clock.advance(10)
        assert not bench.publisher.healthy
        bench.transport.failing.clear()
        await bench.clock.advance(10)
        assert bench.publisher.healthy


async def test_stopping_waits_for_confirms_and_not_for_ever() -> None:
    bench = Bench()
    async with asyncio.timeout(5), running(bench.publisher.run):
        bench.publisher.offer([row(1)])
        await settle()
    assert bench.engine.confirmed == []
    assert bench.engine.delayed == []
