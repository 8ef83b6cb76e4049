"""Activity attempts against an engine's end of the link."""

import asyncio

from odin.core import wire
from tests.worker.peer import SHARD, History, peer
from tests.worker.scene import ended, first, start_attempt, worker_of


async def test_a_plain_function_runs_in_a_thread_with_its_info() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            await start_attempt(engine, history, "in_a_thread", 41)
            number, thread, key = first((await ended(engine)).result)
            assert number == 42
            assert thread.startswith("odin-activity")
            assert key == f"{history.header.workflow_id}/{history.header.run_id}/7"


async def test_arguments_that_do_not_fit_fail_for_good_and_are_named() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            await start_attempt(engine, History("greeting"), "in_a_thread", "many")
            failure = (await ended(engine)).failure
            assert failure is not None
            assert failure.non_retryable
            assert "argument 1 (number)" in failure.message


async def test_a_result_that_cannot_be_written_down_fails_for_good() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            await start_attempt(engine, History("greeting"), "returns_a_nan")
            failure = (await ended(engine)).failure
            assert failure is not None
            assert failure.non_retryable


async def test_heartbeats_are_throttled_and_flushed_before_a_failure_is_reported() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            await start_attempt(engine, History("greeting"), "beats", heartbeat_ms=60_000)
            outcome = await ended(engine)
            assert outcome.failure is not None
            assert (outcome.failure.type, outcome.failure.non_retryable) == ("Tired", True)
            assert [first(one.details[0]) for one in engine.heard(wire.Heartbeat)] == ["second"]


async def test_an_async_activity_beats_by_itself() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            claim = await start_attempt(engine, History("greeting"), "endless", heartbeat_ms=100)
            for _ in range(3):
                assert (await engine.hear(wire.Heartbeat)).claim_token == claim.claim_token


async def test_a_cancelled_activity_ends_as_canceled() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting")
            for name, how in (("endless", "canceled"), ("thread_until_told", "completed")):
                claim = await start_attempt(engine, history, name)
                await asyncio.sleep(0.02)
                run_id = history.header.run_id
                engine.say(wire.CancelActivity(SHARD, run_id, 7, claim.claim_token, "test"))
                assert (await ended(engine)).how == how
