"""What an author and a client see: runs from start to end on one engine and one worker."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from odin.client import WorkflowFailureError
from odin.errors import (
    NotFoundError,
    OdinError,
    RequestMismatchError,
    RunClosedError,
    WorkflowAlreadyStartedError,
)
from tests.engine.bed import Bed
from tests.engine.flows import (
    ACTIVITIES,
    WORKFLOWS,
    Collect,
    CountOn,
    broken,
    cleaned_up,
    fan_out,
    many_steps,
    one_step,
    refused,
    retried,
    sleeper,
    started,
    timed_out,
)


async def test_a_run_goes_from_start_to_result_and_its_history_is_dense(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await bed.client.execute_workflow(one_step, "tea", id="one") == "tea"

    assert await bed.history("one") == [
        "workflow_execution_started",
        "workflow_task_completed",
        "activity_task_scheduled",
        "activity_task_completed",
        "workflow_task_completed",
        "workflow_execution_completed",
    ]
    rows = await bed.fetch("SELECT event_id, range_id FROM event ORDER BY event_id")
    assert [row["event_id"] for row in rows] == [1, 2, 3, 4, 5, 6]


async def test_steps_and_fan_outs_finish(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await bed.client.execute_workflow(many_steps, 5, id="steps") == 5
    assert await bed.client.execute_workflow(fan_out, 20, id="fan") == [str(n) for n in range(20)]


async def test_a_run_started_before_any_worker_runs_once_there_is_one(bed: Bed) -> None:
    handle = await bed.client.start_workflow(one_step, "late", id="early")
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await handle.result() == "late"


async def test_the_same_request_id_starts_one_run_and_another_body_is_refused(bed: Bed) -> None:
    first = await bed.client.start_workflow(one_step, "a", id="same", request_id="r-1")
    again = await bed.client.start_workflow(one_step, "a", id="same", request_id="r-1")

    assert again.run_id == first.run_id
    with pytest.raises(RequestMismatchError):
        await bed.client.start_workflow(one_step, "b", id="same", request_id="r-1")


async def test_fifty_starts_at_once_of_one_request_make_one_run(bed: Bed) -> None:
    async def start() -> str | None:
        handle = await bed.client.start_workflow(one_step, "a", id="fifty", request_id="r-50")
        return handle.run_id

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start()) for _ in range(50)]

    assert len({task.result() for task in tasks}) == 1
    assert (await bed.history("fifty")).count("workflow_execution_started") == 1


async def test_another_start_of_a_running_id_is_told_which_run_is_in_the_way(bed: Bed) -> None:
    first = await bed.client.start_workflow(Collect.run, id="busy")

    with pytest.raises(WorkflowAlreadyStartedError) as refusal:
        await bed.client.start_workflow(Collect.run, id="busy")

    assert refusal.value.details["run_id"] == first.run_id


async def test_a_failed_attempt_is_retried_as_its_policy_says(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await bed.client.execute_workflow(retried, args=["try", 3], id="try") == 3
    assert [one for one in started if one.startswith("try:")] == ["try:1", "try:2", "try:3"]


async def test_a_non_retryable_failure_reaches_the_workflow_at_once(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await bed.client.execute_workflow(refused, "no", id="no") == "ApplicationError:Never"
    assert started.count("no") == 1


async def test_an_attempt_beyond_its_timeout_is_lost_and_the_next_one_counts(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    assert await bed.client.execute_workflow(timed_out, "slow", id="slow") == 2


async def test_a_timer_is_never_early(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)

    slept = await bed.client.execute_workflow(sleeper, 300, id="nap")

    assert slept >= 0.3
    rows = await bed.fetch(
        "SELECT started.attributes AS started, to_us(fired.recorded_at) AS fired_us"
        " FROM event AS fired JOIN event AS started USING (shard_id, run_id)"
        " WHERE fired.type = 'timer_fired' AND started.type = 'timer_started'"
    )
    assert [
        row["fired_us"] >= msgspec.msgpack.decode(row["started"])["fires_at_us"] for row in rows
    ] == [True]


async def test_signals_arrive_once_and_in_order(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(Collect.run, id="signals")

    for number in range(30):
        await handle.signal(Collect.add, number)
    await handle.signal(Collect.finish)

    assert await handle.result() == list(range(30))


async def test_no_signal_is_lost_across_continue_as_new(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.start_workflow(CountOn.run, args=[0, 100], id="counting")
    handle = bed.client.get_workflow_handle("counting")

    for _ in range(100):
        await handle.signal(CountOn.tick)

    async with asyncio.timeout(30):
        assert await handle.result() == 100


async def test_a_cancelled_run_cleans_up_and_ends_as_canceled(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(cleaned_up, "clean", id="clean")
    async with asyncio.timeout(10):
        while "clean" not in started:
            await asyncio.sleep(0.01)

    await handle.cancel()

    with pytest.raises(WorkflowFailureError):
        await handle.result()
    rows = await bed.fetch("SELECT status FROM execution WHERE workflow_id = 'clean'")
    assert [row["status"] for row in rows] == ["canceled"]
    assert (await bed.history("clean")).count("activity_task_completed") == 1
    async with asyncio.timeout(10):
        while "clean:canceled" not in started:
            await asyncio.sleep(0.01)


async def test_a_terminated_run_is_closed_and_takes_nothing_more(bed: Bed) -> None:
    handle = await bed.client.start_workflow(Collect.run, id="gone")

    await handle.terminate("no more")

    with pytest.raises(RunClosedError):
        await handle.signal(Collect.add, 1)
    with pytest.raises(WorkflowFailureError):
        await handle.result()


async def test_a_bug_fails_the_task_and_never_the_run(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(broken, "bug", id="bug")

    async with asyncio.timeout(10):
        while True:
            described = await handle.describe()
            if described.workflow_task.failures > 0:
                break
            await asyncio.sleep(0.05)

    assert described.status.lower() == "running"
    failure = described.workflow_task.last_failure
    assert failure is not None
    assert "a bug in the workflow" in failure.message
    await handle.terminate("seen")


async def test_what_does_not_exist_is_not_found(bed: Bed) -> None:
    with pytest.raises(NotFoundError):
        await bed.client.get_workflow_handle("nobody").signal("add", 1)


async def test_a_run_whose_time_is_up_is_timed_out(bed: Bed) -> None:
    handle = await bed.client.start_workflow(
        Collect.run, id="short", run_timeout=timedelta(milliseconds=400)
    )

    with pytest.raises((WorkflowFailureError, OdinError)):
        await handle.result()

    rows = await bed.fetch("SELECT status FROM execution WHERE workflow_id = 'short'")
    assert [row["status"] for row in rows] == ["timed_out"]
