"""A worker whose links are cut and whose shards move."""

import asyncio

from odin.core import events as e
from odin.core import wire
from tests.worker.peer import SHARD, History, peer, scheduled
from tests.worker.scene import (
    OTHER_RUN,
    ended,
    finish_activity,
    first,
    run_first_task,
    start_attempt,
    until,
    worker_of,
)


async def test_a_cut_link_repeats_the_report_and_the_claim_under_the_same_ids() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            history, other = History("greeting", "you"), History("greeting", "x", run_id=OTHER_RUN)
            await engine.hear(wire.Inventory)
            engine.say(wire.Tasks(1, "default", (history.task(), other.task(5, "a"))))
            engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
            report = await engine.hear(wire.ReportWorkflowTask)
            claim = await engine.hear(wire.ClaimActivityTask)
            engine.cut()
            await engine.hear(wire.Hello, lambda _: True)
            await engine.hear(wire.Hello)
            await engine.hear(wire.Inventory)
            again = await engine.hear(wire.ReportWorkflowTask)
            claimed = await engine.hear(wire.ClaimActivityTask)
            assert (again.report_id, again.commands) == (report.report_id, report.commands)
            assert claimed.claim_token == claim.claim_token
            engine.say(history.accept(again, scheduled(again.commands[0])))  # type: ignore[arg-type] # it is one
            await finish_activity(engine, history, again.commands[0])  # type: ignore[arg-type] # it is one
            engine.say(history.push(2, history.last_id - 1))
            await engine.hear(wire.ReportWorkflowTask)


async def test_the_inventory_after_a_cut_names_what_runs_and_what_is_warm() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            await run_first_task(engine, history)
            claim = await start_attempt(engine, history, "endless")
            await asyncio.sleep(0.05)
            engine.cut()
            inventory = await engine.hear(wire.Inventory)
            assert [one.claim_token for one in inventory.claims] == [claim.claim_token]
            assert inventory.warm == (
                wire.WarmRun(SHARD, history.header.run_id, history.token, history.last_id),
            )


async def test_not_owner_sends_the_claim_to_the_new_owner_under_the_same_token() -> None:
    async with peer("engine-a") as old, peer("engine-b") as new:
        old.owns(SHARD)
        async with worker_of(old, new) as worker:
            await until(lambda: worker.linked == 2)
            history = History("greeting", "you")
            old.say(wire.Tasks(1, "default", (history.task(7, "a"),)))
            claim = await old.hear(wire.ClaimActivityTask)
            old.say(wire.NotOwner(claim.seq, wire.ShardEntry(SHARD, "engine-b", 2)))
            again = await new.hear(wire.ClaimActivityTask)
            assert again.claim_token == claim.claim_token
            new.say(history.activity(again, "greet", "you"))
            assert first((await ended(new)).result) == "hello you"


async def test_not_owner_without_a_better_name_is_asked_again_a_little_later() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            engine.say(wire.Tasks(1, "default", (history.task(),)))
            claim = await engine.hear(wire.ClaimWorkflowTask)
            entry = wire.ShardEntry(SHARD, "engine-a", 1)
            engine.say(wire.NotOwner(claim.seq, entry, retry_ms=10))
            again = await engine.hear(wire.ClaimWorkflowTask)
            assert (again.run_id, again.number) == (claim.run_id, claim.number)


async def test_a_task_of_an_unknown_owner_is_parked_and_claimed_when_the_map_says_who() -> None:
    async with peer() as engine, worker_of(engine) as worker:
        await engine.hear(wire.Inventory)
        history = History("greeting", "you")
        assert await engine.give(history.task(7, "a"))
        await until(lambda: worker.desk.book.parked == 1)
        assert worker.desk.book.activity_free == 100
        engine.say(wire.ShardMap((wire.ShardEntry(SHARD, "engine-a", 4),)))
        await engine.hear(wire.ClaimActivityTask)


async def test_a_map_entry_of_a_lower_range_is_ignored() -> None:
    async with peer("engine-a") as right, peer("engine-b") as wrong:
        right.owns(SHARD, range_id=9)
        async with worker_of(right, wrong) as worker:
            await until(lambda: worker.linked == 2)
            wrong.say(wire.ShardMap((wire.ShardEntry(SHARD, "engine-b", 8),)))
            wrong.say(wire.Tasks(1, "default", (History("greeting", "x").task(7, "a"),)))
            await right.hear(wire.ClaimActivityTask)
            assert not wrong.heard(wire.ClaimActivityTask)


async def test_a_moved_shard_is_told_the_inventory_before_the_repeats() -> None:
    async with peer("engine-a") as old, peer("engine-b") as new:
        old.owns(SHARD)
        async with worker_of(old, new) as worker:
            await until(lambda: worker.linked == 2)
            history = History("greeting", "you")
            await run_first_task(old, history)
            history.append(e.WorkflowExecutionSignaled(name="x"))
            old.say(history.push(2, history.last_id - 1))
            report = await old.hear(wire.ReportWorkflowTask)
            new.said.clear()
            new.say(wire.ShardMap((wire.ShardEntry(SHARD, "engine-b", 2),)))
            again = await new.hear(wire.ReportWorkflowTask)
            assert again.report_id == report.report_id
            inventory = await new.hear(wire.Inventory)
            assert inventory.shards == (SHARD,)
