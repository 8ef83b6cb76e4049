"""What user code brings, through a real engine and a real worker: kept exactly, or a failure."""

from __future__ import annotations

import asyncio
import math

import pytest

from odin.client import WorkflowFailureError
from odin.errors import InvalidArgumentError, PayloadError
from tests.door.flows import FINE, POISON, Opaque, nested
from tests.engine.bed import Bed

SECONDS = 5.0


async def told(bed: Bed, name: str, kind: str) -> str:
    """Run one activity in a run of its own and return what the run says of it."""
    workflow_id = f"{name}-{kind}".replace(" ", "-")
    async with asyncio.timeout(SECONDS):
        return str(
            await bed.client.execute_workflow("one_activity", args=[name, kind], id=workflow_id)
        )


@pytest.mark.parametrize("kind", POISON)
async def test_a_result_that_cannot_be_kept_is_a_failed_activity_that_says_why(
    door: Bed, kind: str
) -> None:
    said = await told(door, "make", kind)
    assert said.startswith("failed: "), said
    assert "the result of 'make'" in said


@pytest.mark.parametrize("kind", FINE)
async def test_a_result_that_only_looks_dangerous_is_kept(door: Bed, kind: str) -> None:
    assert (await told(door, "make", kind)).startswith("kept: ")


@pytest.mark.parametrize(
    "kind", ["nul", "surrogate", "1 MB", "details", "bad details", "broken str", "chain"]
)
async def test_a_failure_that_is_hard_to_keep_is_kept_cut_and_clean(door: Bed, kind: str) -> None:
    said = await told(door, "fail_with", kind)
    assert said.startswith("failed: "), said
    assert "\0" not in said
    assert "\ud800" not in said


@pytest.mark.parametrize("kind", POISON)
async def test_heartbeat_details_that_cannot_be_kept_fail_the_attempt_or_are_told(
    door: Bed, kind: str
) -> None:
    said = await told(door, "beat", kind)
    assert said.startswith("failed: "), said
    assert "detail" in said


@pytest.mark.parametrize("kind", POISON)
async def test_a_run_that_returns_what_cannot_be_kept_fails_its_task_visibly(
    door: Bed, kind: str
) -> None:
    handle = await door.client.start_workflow(
        "returns", kind, id=f"returns-{kind}".replace(" ", "-")
    )
    async with asyncio.timeout(SECONDS):
        while True:
            found = await handle.describe()
            failure = found.workflow_task.last_failure
            if failure is not None or found.status != "running":
                break
            await asyncio.sleep(0.02)
    assert found.status in ("running", "failed")
    if found.status == "running":
        assert failure is not None
        assert "result" in failure.message, failure
        await handle.terminate("seen")


@pytest.mark.parametrize("kind", ["details", "text"])
async def test_a_run_that_fails_with_too_much_fails_all_the_same(door: Bed, kind: str) -> None:
    async with asyncio.timeout(SECONDS):
        with pytest.raises(WorkflowFailureError):
            await door.client.execute_workflow("fails", kind, id=f"fails-{kind}")


UNSENDABLE = {
    "nan": math.nan,
    "surrogate": "\ud800",
    "set": {1},
    "object": Opaque(),
    "deep": nested(10_000),
    "huge": "x" * (300 * 1024),
    "big integer": 10**40,
}


@pytest.mark.parametrize("kind", UNSENDABLE)
async def test_a_client_refuses_to_send_what_cannot_be_kept(door: Bed, kind: str) -> None:
    with pytest.raises(PayloadError):
        await door.client.start_workflow("echoes", UNSENDABLE[kind], id="never")
    with pytest.raises(PayloadError):
        await door.client.start_workflow("echoes", 1, id="never", memo={"m": UNSENDABLE[kind]})
    handle = await door.client.start_workflow("Waits", id=f"waits-{kind}".replace(" ", "-"))
    with pytest.raises(PayloadError):
        await handle.signal("add", UNSENDABLE[kind])
    await handle.terminate("done")


async def test_what_the_engine_refuses_of_a_client_is_typed_and_changes_nothing(door: Bed) -> None:
    with pytest.raises(InvalidArgumentError):
        await door.client.start_workflow("echoes", "\0", id="nul")
    with pytest.raises(InvalidArgumentError):
        await door.client.start_workflow("echoes", args=["x" * 200_000] * 10, id="sum")
    assert await door.fetch("SELECT 1 FROM execution WHERE workflow_id IN ('nul', 'sum')") == []


async def test_a_hundred_large_arguments_fail_the_task_and_name_the_activity(door: Bed) -> None:
    handle = await door.client.start_workflow("passes", args=[100, 250_000], id="hundred")
    async with asyncio.timeout(SECONDS):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.02)
    assert found.status == "running"
    assert found.workflow_task.last_failure is not None
    assert "large" in found.workflow_task.last_failure.message
    await handle.terminate("seen")


async def test_a_hundred_small_arguments_arrive(door: Bed) -> None:
    assert await door.client.execute_workflow("passes", args=[100, 5_000], id="small") == 500_000


async def test_a_sum_of_arguments_beyond_one_event_fails_the_task_before_anything_is_written(
    door: Bed,
) -> None:
    handle = await door.client.start_workflow("passes", args=[8, 200_000], id="sum-of-arguments")
    async with asyncio.timeout(SECONDS):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.02)
    assert "more than" in found.workflow_task.last_failure.message
    assert "activity_task_scheduled" not in await door.history("sum-of-arguments")
    await handle.terminate("seen")
    assert (await handle.describe()).status == "terminated"


async def test_two_thousand_activities_of_one_task_all_run(door: Bed) -> None:
    async with asyncio.timeout(40):
        total = await door.client.execute_workflow("fan", args=[2_000, 1], id="fan-2000")
    assert total == 2_000


async def test_more_than_that_fails_the_task_and_says_the_limit(door: Bed) -> None:
    handle = await door.client.start_workflow("fan", args=[2_001, 1], id="fan-2001")
    async with asyncio.timeout(20):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.05)
    assert "2000" in found.workflow_task.last_failure.message
    await handle.terminate("seen")


async def test_a_report_of_more_than_a_frame_fails_the_task_and_says_so(door: Bed) -> None:
    handle = await door.client.start_workflow("fan", args=[30, 200_000], id="fan-large")
    async with asyncio.timeout(SECONDS):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.02)
    assert "too large" in found.workflow_task.last_failure.message
    await handle.terminate("seen")


async def test_large_events_of_one_report_come_back_by_pages_and_the_run_goes_on(door: Bed) -> None:
    async with asyncio.timeout(20):
        total = await door.client.execute_workflow("fan", args=[12, 250_000], id="fan-pages")
    assert total == 12 * 250_000


async def test_fifty_events_of_the_largest_size_are_read_replayed_and_pushed_by_pages(
    door: Bed,
) -> None:
    async with asyncio.timeout(40):
        total = await door.client.execute_workflow("heavy", 50, id="heavy")
    assert total == 50 * (256 * 1024 - 2)
    history = [
        event async for event in door.client.get_workflow_handle("heavy").fetch_history_events()
    ]
    assert [event.event_id for event in history] == list(range(1, len(history) + 1))
    assert len(history) == len(await door.history("heavy"))


async def test_a_run_with_the_largest_pending_payload_can_be_terminated(door: Bed) -> None:
    handle = await door.client.start_workflow(
        "Waits", args=["x" * 250_000] * 4, id="full", memo={"m": "y" * 30_000}
    )
    for _ in range(12):
        await handle.signal("add", "s" * 250_000)
    await handle.terminate("enough")
    assert (await handle.describe()).status == "terminated"
