"""Engines that come, go, freeze and lose their shards, while runs go on."""

import asyncio
import time

import pytest

from engine.store.group import Group
from odin.client import Client, WorkflowContinuedAsNewError
from odin.errors import UnavailableError
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import (
    ACTIVITIES,
    WORKFLOWS,
    Collect,
    CountOn,
    many_steps,
    one_step,
    sleeper,
)
from tests.engine.test_outcomes import spoiling

TAKEOVER_SECONDS_MAX = 12.0


async def test_two_engines_share_the_shards_and_each_answers_for_all(dsn: str) -> None:
    async with running_bed(dsn, engines=2, shard_count=16) as bed:
        await bed.until(
            "SELECT count(DISTINCT owner) = 2 FROM shard", seconds=30
        )  # hand-over waits until the heir was seen ready for 10 s
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        async with asyncio.TaskGroup() as group:
            results = [
                group.create_task(bed.client.execute_workflow(many_steps, 3, id=f"shared-{n}"))
                for n in range(24)
            ]
        assert {task.result() for task in results} == {3}


async def test_a_killed_engine_s_shards_serve_again_within_twelve_seconds(dsn: str) -> None:
    async with running_bed(dsn, engines=2, shard_count=16) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        handles = [
            await bed.client.start_workflow(sleeper, 200, id=f"survivor-{n}") for n in range(12)
        ]
        owners = await bed.fetch(
            "SELECT node_id FROM shard JOIN node ON incarnation = owner GROUP BY node_id"
            " ORDER BY count(*) DESC LIMIT 1"
        )
        victim = next(one for one in bed.engines if one.node_id == owners[0]["node_id"])

        killed_at = time.monotonic()
        await bed.kill(victim)
        other = bed.engines[0]
        async with await Client.connect(other.address) as client:
            for number in range(16):
                async with asyncio.timeout(TAKEOVER_SECONDS_MAX + 3):
                    while True:
                        try:
                            await client.start_workflow(one_step, "x", id=f"after-{number}")
                        except UnavailableError:
                            continue
                        break
            assert time.monotonic() - killed_at <= TAKEOVER_SECONDS_MAX
            for handle in handles:
                survivor = client.get_workflow_handle(handle.id)
                async with asyncio.timeout(30):
                    await survivor.result()


async def test_an_engine_told_to_stop_hands_its_shards_over_in_about_a_second(dsn: str) -> None:
    async with running_bed(dsn, engines=2, shard_count=16) as bed:
        await bed.until("SELECT count(*) = 2 FROM node WHERE state = 'alive'")
        leaving = bed.engines[0]
        started_at = time.monotonic()
        leaving.stop.set()
        await bed.until(
            "SELECT count(*) = 16 FROM shard JOIN node ON incarnation = owner"
            " WHERE node_id = $1 AND state = 'alive'",
            bed.engines[1].node_id,
        )
        assert time.monotonic() - started_at < 3.0
        await asyncio.wait({leaving.task}, timeout=10)
        assert leaving.task.done()
        bed.engines.remove(leaving)
        rows = await bed.fetch("SELECT state FROM node WHERE node_id = $1", leaving.node_id)
        assert [row["state"] for row in rows] == ["dead"]


async def test_an_engine_marked_dead_goes_on_under_a_new_incarnation(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(sleeper, 1_000, id="through-death")
    before = await bed.fetch("SELECT incarnation FROM node WHERE state = 'alive'")

    await bed.execute("UPDATE node SET state = 'dead'")

    await bed.until(
        "SELECT count(*) = 1 FROM node WHERE state = 'alive' AND incarnation <> $1",
        before[0]["incarnation"],
    )
    async with asyncio.timeout(30):
        await handle.result()


async def test_a_shard_that_was_taken_away_is_noticed_and_its_writes_are_refused(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.execute("UPDATE shard SET range_id = range_id + 1")

    async with asyncio.timeout(30):
        assert await bed.client.execute_workflow(one_step, "still", id="fenced-off") == "still"

    rows = await bed.fetch(
        "SELECT event.range_id, shard.range_id AS current FROM event JOIN shard USING (shard_id)"
    )
    assert rows
    assert all(row["range_id"] <= row["current"] for row in rows)


async def test_acknowledged_signals_survive_the_loss_of_every_term(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(Collect.run, id="moving")
    for number in range(20):
        await handle.signal(Collect.add, number)
        if number % 7 == 3:
            await bed.execute("UPDATE shard SET range_id = range_id + 1")
    await handle.signal(Collect.finish)

    async with asyncio.timeout(30):
        assert await handle.result() == list(range(20))


async def test_a_closed_run_that_is_read_again_is_not_taken_for_the_newest(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(CountOn.run, args=[0, 2], id="chain")
    first_run_id = handle.run_id
    await handle.signal(CountOn.tick)
    await bed.until("SELECT count(*) = 2 FROM execution WHERE workflow_id = 'chain'")
    await bed.lose_all_terms()
    closed = bed.client.get_workflow_handle("chain", run_id=first_run_id)
    async with asyncio.timeout(20):
        with pytest.raises(WorkflowContinuedAsNewError):
            await closed.result(follow_runs=False)

        await bed.client.get_workflow_handle("chain").signal(CountOn.tick)

        assert await bed.client.get_workflow_handle("chain").result() == 2


async def test_a_task_pushed_before_a_takeover_is_brought_back_though_messages_keep_coming(
    dsn: str,
) -> None:
    spoiled: list[int] = []

    def plan(group: Group) -> str:
        pushed = any(one.workflow_task.pushed for one in group.updates.values())
        if pushed and not spoiled:
            spoiled.append(1)
            return "commit, then err"
        return ""

    async with running_bed(dsn, store_type=spoiling("PushLost", plan)) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        handle = await bed.client.start_workflow(Collect.run, id="busy")
        await bed.until("SELECT EXISTS (SELECT FROM event WHERE type = 'workflow_task_completed')")
        number = 0
        async with asyncio.timeout(4.0):  # the push itself would be due again after 5 s
            while not spoiled or (await bed.history("busy")).count("workflow_task_completed") < 2:
                await handle.signal(Collect.add, number)
                number += 1
        await handle.terminate("seen")


async def test_a_second_engine_of_one_node_id_refuses_to_start(bed: Bed) -> None:
    with pytest.raises(ExceptionGroup):
        async with running_bed(bed.dsn, engines=0, shard_count=8) as second:
            await second.start_engine("engine-1")
