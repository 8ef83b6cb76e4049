"""Slots, and a worker that is told to stop."""

import asyncio
import time
from datetime import timedelta

from odin.core import wire
from odin.worker import Worker
from tests.worker.peer import NOW_US, SHARD, History, peer
from tests.worker.scene import ended, greeting, run_first_task, start_attempt, until, worker_of


async def test_an_attempt_past_its_deadline_is_stopped_and_not_reported() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine) as worker:
            await engine.hear(wire.Inventory)
            history = History("greeting")
            await start_attempt(engine, history, "endless", deadline_us=NOW_US + 50_000)
            await until(lambda: worker.desk.book.running == 1)
            await until(lambda: worker.desk.book.running == 0)
            assert not worker.desk.book.held()
            assert not engine.heard(wire.ReportActivityTask)


async def test_only_free_slots_claim_and_what_is_too_much_is_released() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine, max_concurrent_activities=1) as worker:
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            assert await engine.give(*(history.task(number, "a") for number in range(1, 4)))
            assert not await engine.give(history.task(9, "a"))
            claim = await engine.hear(wire.ClaimActivityTask)
            engine.say(history.activity(claim, "endless"))
            await until(lambda: worker.desk.book.running == 1)
            assert not engine.heard(wire.ClaimActivityTask)
            assert worker.desk.book.unclaimed == 2
            worker.stop()
            released = await engine.hear(wire.Release)
            assert [one.number for one in released.tasks] == [2, 3]


async def test_shutdown_lets_an_activity_finish_within_the_grace() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        grace = timedelta(seconds=5)
        async with worker_of(engine, graceful_shutdown_timeout=grace) as worker:
            await engine.hear(wire.Inventory)
            history = History("greeting")
            claim = await start_attempt(engine, history, "endless")
            await until(lambda: worker.desk.book.running == 1)
            worker.stop()
            run_id = history.header.run_id
            engine.say(wire.CancelActivity(SHARD, run_id, 7, claim.claim_token, "test"))
            assert (await ended(engine)).how == "canceled"


async def test_shutdown_reports_what_does_not_finish_as_to_be_tried_again() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine) as worker:
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            await run_first_task(engine, history)
            await start_attempt(engine, history, "endless")
            await until(lambda: worker.desk.book.running == 1)
            worker.stop()
            failure = (await ended(engine)).failure
            assert failure is not None
            assert not failure.non_retryable
            assert failure.type == "WorkerStopped"
            await engine.hear(wire.Evicted)


async def test_shutdown_ends_in_time_although_no_engine_answers() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        worker = worker_of(engine)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            await engine.hear(wire.Inventory)
            await start_attempt(engine, History("greeting"), "endless")
            await until(lambda: worker.desk.book.running == 1)
            began = time.monotonic()
            worker.stop()
            await running
            assert time.monotonic() - began < 0.2 + 2.0


async def test_a_worker_without_any_engine_stops_at_once() -> None:
    worker = Worker("127.0.0.1:9", workflows=[greeting], broker="embedded")
    stop = asyncio.Event()
    async with asyncio.timeout(2), asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        await asyncio.sleep(0.1)
        stop.set()


async def test_a_second_stop_does_not_wait_for_activities() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        worker = worker_of(engine, graceful_shutdown_timeout=timedelta(seconds=60))
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await engine.hear(wire.Inventory)
            await start_attempt(engine, History("greeting"), "endless")
            await until(lambda: worker.desk.book.running == 1)
            worker.stop()
            worker.stop()
            await ended(engine)
