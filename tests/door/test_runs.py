"""Runs that cannot be served: they say why, and cost no other run anything."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial

import aiohttp
import msgspec
import pytest

import engine.lifetime
from odin.client import Client
from odin.core.admission import Limits
from odin.core.execution import WorkflowTask
from odin.core.sharding import shard_of
from odin.errors import FailedPreconditionError
from tests.door.flows import ACTIVITIES, WORKFLOWS, returns
from tests.engine.bed import Bed, running_bed


async def until_task_failure(bed: Bed, workflow_id: str) -> str:
    handle = bed.client.get_workflow_handle(workflow_id)
    async with asyncio.timeout(5):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.02)
    assert found.status == "running"
    return found.workflow_task.last_failure.message


async def test_an_unknown_workflow_type_fails_its_task_and_names_those_that_there_are(
    door: Bed,
) -> None:
    handle = await door.client.start_workflow("no-such-type", id="unknown-type")
    said = await until_task_failure(door, "unknown-type")
    assert "'no-such-type'" in said
    assert "one_activity" in said
    await handle.terminate("seen")


async def test_another_worker_that_knows_the_type_takes_the_task(door: Bed) -> None:
    queue = "two-versions"
    await door.start_worker([returns], [], task_queue=queue)
    handle = await door.client.start_workflow("echoes", 7, id="later-known", task_queue=queue)
    await until_task_failure(door, "later-known")
    await door.start_worker(WORKFLOWS, ACTIVITIES, task_queue=queue)
    async with asyncio.timeout(20):
        assert await handle.result() == 7


async def test_an_unknown_activity_type_fails_each_attempt_visibly_and_is_tried_again(
    door: Bed,
) -> None:
    handle = await door.client.start_workflow("calls_unknown", "no-such-activity", id="no-activity")
    async with asyncio.timeout(10):
        while True:
            found = await handle.describe()
            [*pending] = found.pending_activities
            if pending and pending[0].attempt >= 2 and pending[0].last_failure is not None:
                break
            await asyncio.sleep(0.05)
    assert "'no-such-activity'" in pending[0].last_failure.message
    assert "make" in pending[0].last_failure.message
    await handle.terminate("seen")


async def test_the_first_bad_run_of_a_batch_does_not_hold_up_the_other_forty_nine(
    door: Bed,
) -> None:
    starts = [door.client.start_workflow("no-such-type", id="batch-0")]
    starts += [door.client.start_workflow("echoes", n, id=f"batch-{n}") for n in range(1, 50)]
    async with asyncio.TaskGroup() as group:
        started = [group.create_task(one) for one in starts]
    handles = [one.result() for one in started]
    async with asyncio.timeout(10):
        assert [await one.result() for one in handles[1:]] == list(range(1, 50))
    await until_task_failure(door, "batch-0")
    await handles[0].terminate("seen")


BAD_POLICY = {"initial_interval_ms": -1}
GOOD_TASK = WorkflowTask(state="scheduled", number=1, attempt=1, due_us=1)
DAMAGE: dict[str, dict[str, object]] = {
    "no msgpack": {"pending": b"\xc1\xc1"},
    "empty": {"pending": b""},
    "another shape": {"pending": msgspec.msgpack.encode({"a": 1})},
    "a policy that contradicts itself": {
        "pending": msgspec.msgpack.encode(
            [GOOD_TASK, {1: [1, "a", "t", "q", 2, 1, BAD_POLICY, None, 1, None, None]}, {}, []]
        )
    },
    "a memo": {"memo": b"\xc1"},
    "search attributes": {"search_attributes": msgspec.msgpack.encode([1])},
}


async def insert_damaged(bed: Bed, workflow_id: str, damage: dict[str, object]) -> tuple[int, str]:
    """Put the row of an open run into the database that cannot be read; return shard and run id."""
    await bed.client.start_workflow("Waits", id=f"donor-of-{workflow_id}")
    [donor] = await bed.fetch(
        "SELECT * FROM execution WHERE workflow_id = $1", f"donor-of-{workflow_id}"
    )
    shard = shard_of("default", workflow_id, bed.shard_count)
    run_id = f"018bcfe5-6801-7000-b2a7-{secrets.token_hex(6)}"
    columns = {
        **dict(donor),
        "shard_id": shard,
        "workflow_id": workflow_id,
        "run_id": run_id,
        "first_run_id": run_id,
        "has_task": True,
        **damage,
    }
    places = ", ".join(f"${at}" for at in range(1, len(columns) + 1))
    names = ", ".join(columns)
    await bed.execute(f"INSERT INTO execution ({names}) VALUES ({places})", *columns.values())
    await bed.execute(
        "UPDATE execution SET due_at = clock_timestamp() - interval '1 s' WHERE run_id = $1", run_id
    )
    return shard, run_id


@pytest.mark.parametrize("what", DAMAGE)
async def test_a_row_that_cannot_be_read_is_named_once_and_its_neighbours_go_on(
    door: Bed, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    workflow_id = f"damaged-{what}".replace(" ", "-")
    shard, run_id = await insert_damaged(door, workflow_id, DAMAGE[what])
    handle = door.client.get_workflow_handle(workflow_id)
    for call in (handle.describe, handle.terminate, handle.cancel):
        with pytest.raises(FailedPreconditionError) as refused:
            await call()
        assert refused.value.reason == "RUN_DAMAGED"
        assert run_id in str(refused.value)
    with pytest.raises(FailedPreconditionError):
        await door.client.start_workflow("echoes", 1, id=workflow_id)
    told = [one for one in caplog.records if one.getMessage() == "run left alone"]
    assert [vars(one)["run_id"] for one in told] == [run_id]
    names = [f"{workflow_id}-{n}" for n in range(200)]
    neighbours = [one for one in names if shard_of("default", one, door.shard_count) == shard]
    for name in neighbours[:3]:
        async with asyncio.timeout(10):
            assert await door.client.execute_workflow("echoes", name, id=name) == name
    await door.execute("DELETE FROM execution WHERE run_id = $1", run_id)


async def until_linked(address: str) -> None:
    """Return once the engine has a worker."""
    async with aiohttp.ClientSession(address) as api, asyncio.timeout(15):
        while True:
            async with api.get("/v1/workers") as answer:
                if (await answer.json())["items"]:
                    return
            await asyncio.sleep(0.05)


async def test_damaged_rows_stop_no_takeover_and_no_timer(dsn: str) -> None:
    async with running_bed(dsn) as bed:
        for at, damage in enumerate(DAMAGE.values()):
            await insert_damaged(bed, f"damaged-{at}", damage)
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        handle = await bed.client.start_workflow("Waits", id="through-takeover")
        first = bed.engines[0]
        second = await bed.start_engine("engine-2")
        await until_linked(second.address)
        first.stop.set()
        await asyncio.wait({first.task}, timeout=15)
        first.task.result()
        bed.engines.remove(first)
        await bed.all_owned()
        async with await Client.connect(second.address) as client, asyncio.timeout(20):
            again = client.get_workflow_handle("through-takeover")
            await again.signal("finish")
            assert await again.result() == 0
        assert handle.id == "through-takeover"
        assert not second.task.done()


async def test_a_start_on_a_queue_that_nobody_serves_does_not_shut_the_door_to_others(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = partial(Limits, queue_delay_on_ms=200, queue_delay_off_ms=100)
    monkeypatch.setattr(engine.lifetime, "Limits", low)
    async with running_bed(dsn) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        await bed.client.start_workflow("echoes", 1, id="unserved", task_queue="of-nobody")
        await bed.until("SELECT min(created_at) < clock_timestamp() - interval '1 s' FROM outbox")
        async with asyncio.timeout(5):
            assert await bed.client.execute_workflow("echoes", 2, id="served") == 2
