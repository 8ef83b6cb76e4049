"""Links into a live engine: random bytes, wrong shapes, workers and peers that lie."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.core import commands, requests, wire
from odin.core.payload import Failure, Payload
from odin.runtime.link_sockets import PEER_PATH, WORKER_PATH
from tests.core.struct_strategies import instances
from tests.door.liar import hello, linked
from tests.engine.bed import Bed

RUN = "018bcfe5-6801-726b-b2a7-4de452e6b438"
BUSY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def assert_alive(bed: Bed) -> None:
    """The engine serves, and the honest worker works."""
    key = secrets.token_hex(8)
    async with asyncio.timeout(10):
        said = await bed.client.execute_workflow(
            "one_activity", args=["length", key], id=f"alive-{key}"
        )
    assert said == "kept: 16"
    assert not bed.engines[0].task.done()


@BUSY
@given(frame=st.binary(max_size=300), path=st.sampled_from([WORKER_PATH, PEER_PATH]))
async def test_random_bytes_end_their_link_and_nothing_else(
    door: Bed, frame: bytes, path: str
) -> None:
    async with linked(door, path) as liar:
        await liar.socket.send_bytes(frame)
        try:
            decode = wire.decode_from_worker if path == WORKER_PATH else wire.decode_between_engines
            decode(frame)
        except (msgspec.MsgspecError, ValueError):
            await liar.until_closed()


@BUSY
@given(data=st.data())
async def test_a_frame_with_one_byte_changed_or_cut_off_harms_nobody(
    door: Bed, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([k for k in get_args(wire.FromWorker) if k is not wire.Hello]))
    frame = bytearray(wire.encode_frame([data.draw(instances(kind))]))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(frame)))
    async with linked(door) as liar:
        await liar.socket.send_bytes(bytes(frame[:cut]))
        with contextlib.suppress(ConnectionError):
            await liar.say(wire.Ping(7))


@BUSY
@given(data=st.data())
async def test_any_message_of_the_right_shape_is_answered_or_ignored(
    door: Bed, data: st.DataObject
) -> None:
    unions = {WORKER_PATH: wire.FromWorker, PEER_PATH: wire.BetweenEngines}
    path = data.draw(st.sampled_from(sorted(unions)))
    kinds = [
        kind
        for kind in get_args(unions[path])
        if kind not in (wire.Hello, wire.ShardMap, wire.PeerHello)
    ]
    messages = data.draw(st.lists(st.sampled_from(kinds).flatmap(instances), max_size=5))
    async with linked(door, path) as liar:
        await liar.say(*messages)
        if path == WORKER_PATH:
            await liar.say(wire.Ping(7))
            with contextlib.suppress(AssertionError):  # an end is an answer too
                await liar.hear(wire.Pong)


async def test_after_all_of_that_the_engine_serves(door: Bed) -> None:
    await assert_alive(door)


BAD_HELLOS: dict[str, dict[str, Any]] = {
    "version": {"version": 2},
    "no name": {"worker": ""},
    "name with NUL": {"worker": "a\0b"},
    "long name": {"worker": "x" * 300},
    "build id": {"build_id": "a\0b"},
    "namespace": {"namespace": ""},
    "queue": {"queues": (wire.QueueSpec("a b", workflows=True, activities=True),)},
    "slots": {"workflow_slots": -1},
    "types": {"workflow_types": ("x" * 1_000,)},
}


@pytest.mark.parametrize("what", BAD_HELLOS)
async def test_a_hello_that_lies_is_refused(door: Bed, what: str) -> None:
    async with linked(door, greet=False) as liar:
        await liar.say(hello(liar.name, **BAD_HELLOS[what]))
        await liar.until_closed()


async def test_a_worker_that_speaks_before_its_hello_is_refused(door: Bed) -> None:
    async with linked(door, greet=False) as liar:
        await liar.say(wire.ClaimWorkflowTask(1, 0, RUN, 1))
        await liar.until_closed()


async def test_a_peer_of_another_version_is_refused(door: Bed) -> None:
    async with linked(door, PEER_PATH) as liar:
        await liar.say(wire.PeerHello(99, "x", "y", ()))
        await liar.until_closed()


async def test_a_frame_larger_than_frames_may_be_ends_its_link(door: Bed) -> None:
    async with linked(door) as liar:
        with contextlib.suppress(ConnectionError):
            await liar.socket.send_bytes(b"\0" * (wire.FRAME_BYTES_MAX + 1_000))
        await liar.until_closed()
    await assert_alive(door)


async def test_text_on_a_link_ends_it(door: Bed) -> None:
    async with linked(door) as liar:
        await liar.socket.send_str("hello")
        await liar.until_closed()


@pytest.fixture
async def victim(door: Bed) -> AsyncIterator[tuple[int, str, str]]:
    """A run that waits: shard, run id, workflow id."""
    workflow_id = f"victim-{secrets.token_hex(4)}"
    handle = await door.client.start_workflow("Waits", id=workflow_id)
    await door.until(
        "SELECT count(*) = 2 FROM event JOIN execution USING (shard_id, run_id)"
        " WHERE workflow_id = $1",
        workflow_id,
    )
    [row] = await door.fetch(
        "SELECT shard_id, run_id::text FROM execution WHERE workflow_id = $1", workflow_id
    )
    yield row[0], row[1], workflow_id
    await handle.signal("finish")
    async with asyncio.timeout(5):
        assert await handle.result() == 0


async def test_a_worker_that_reports_for_a_run_of_others_changes_nothing(
    door: Bed, victim: tuple[int, str, str]
) -> None:
    shard, run, workflow_id = victim
    before = await door.history(workflow_id)
    close = (commands.CompleteWorkflow(result=Payload("json", b"1")),)
    failure = Failure("lies")
    outcome = wire.ActivityOutcome("completed", Payload("json", b"1"))
    async with linked(door) as liar:
        for seq, (number, token, seen, time_us) in enumerate(
            [(1, 1, 1, 1), (2, 0, 2, 0), (1, -1, 2**31 - 1, 2**62), (2**31 - 1, 7, 0, 2**62)], 1
        ):
            await liar.say(
                wire.ReportWorkflowTask(
                    seq, f"r{seq}", shard, run, number, token, seen, time_us, close
                )
            )
            refused = await liar.hear(wire.WorkflowTaskRefused)
            assert (refused.seq, refused.reason) == (seq, "stale")
        await liar.say(wire.ReportWorkflowTaskFailure(9, "f", shard, run, 1, 5, failure))
        assert (await liar.hear(wire.WorkflowTaskRefused)).reason == "stale"
        await liar.say(wire.ReportActivityTask(10, shard, run, 1, 1, "not-mine", outcome))
        assert not (await liar.hear(wire.ActivityReportAnswered)).accepted
        await liar.say(wire.ClaimActivityTask(11, shard, run, 1, 1, "mine"))
        await liar.hear(wire.NotWanted)
        await liar.say(wire.ClaimWorkflowTask(12, shard, run, 1, 0, 2**31 - 1))
        await liar.hear(wire.NotWanted)
        await liar.say(wire.FetchHistory(13, shard, run, 2**31 - 1, 2**31 - 1))
        assert (await liar.hear(wire.HistoryPage)).events == ()
        await liar.say(wire.FetchHistory(14, shard, run, 0, 2**31 - 1))
        assert len((await liar.hear(wire.HistoryPage)).events) == 2
        await liar.say(wire.FetchHistory(15, shard, "no-such-run", 0, 5))
        await liar.hear(wire.NotWanted)
        await liar.say(wire.ClaimWorkflowTask(16, 2**31 - 1, run, 1))
        await liar.hear(wire.NotOwner)
        await liar.say(wire.Evicted(shard, run), wire.Slots(10**6, 10**6), wire.Release((), 0))
        await liar.say(
            wire.Inventory(
                None,
                tuple(wire.HeldClaim(shard, run, n, 1, "t") for n in range(5_000)),
                tuple(wire.WarmRun(shard, f"r{n}", n, 1) for n in range(5_000)),
            )
        )
        await liar.say(wire.Ping(1))
        await liar.hear(wire.Pong)
    assert await door.history(workflow_id) == before


async def test_a_worker_that_floods_its_link_slows_no_other_worker(
    door: Bed, victim: tuple[int, str, str]
) -> None:
    shard, run, _ = victim
    claims = [wire.ClaimWorkflowTask(seq, shard, run, 9) for seq in range(1, 2_001)]
    async with linked(door) as liar:
        for _ in range(5):
            await liar.say(*claims)
        await assert_alive(door)


async def test_a_worker_that_takes_a_task_and_reports_nonsense_fails_that_task_visibly(
    door: Bed,
) -> None:
    activity = commands.ScheduleActivity(
        command_id=1, activity_id="a", activity_type="x", task_queue="q"
    )
    huge = tuple(Payload("json", b"1" * 250_000) for _ in range(5))
    closing = commands.CompleteWorkflow(result=Payload("json", b"1"))
    nonsense: list[tuple[Any, ...]] = [
        (msgspec.structs.replace(activity, command_id=-5),),
        (msgspec.structs.replace(activity, command_id=2**40),),
        (activity, activity),
        (msgspec.structs.replace(activity, activity_type="a\0b"),),
        (msgspec.structs.replace(activity, task_queue="a/b"),),
        (msgspec.structs.replace(activity, input=huge),),
        (msgspec.structs.replace(activity, input=(Payload("json", b"1" * 300_000),)),),
        (msgspec.structs.replace(activity, start_to_close_ms=-1),),
        (commands.StartTimer(command_id=1, duration_ms=2**62),),
        (commands.CompleteWorkflow(result=Payload("json", b"1" * 300_000)),),
        (commands.ContinueAsNew(input=huge),),
        (commands.ContinueAsNew(workflow_type="\0"),),
        (closing, closing),
    ]
    for at, bad in enumerate(nonsense):
        await _report(door, f"nonsense-{at}", bad)


async def _report(door: Bed, workflow_id: str, bad: tuple[Any, ...]) -> None:
    """Start a run on a queue of nobody, claim its task as a worker, and report these commands."""
    handle = await door.client.start_workflow("any", id=workflow_id, task_queue="nobody")
    [row] = await door.fetch(
        "SELECT shard_id, run_id::text FROM execution WHERE workflow_id = $1", workflow_id
    )
    async with linked(door) as liar:
        await liar.say(wire.ClaimWorkflowTask(1, row[0], row[1], 1))
        task = await liar.hear(wire.WorkflowTaskGranted)
        await liar.say(
            wire.ReportWorkflowTask(
                2, "r", row[0], row[1], 1, task.task_token, task.upper_event_id, task.time_us, bad
            )
        )
        refused = await liar.hear(wire.WorkflowTaskRefused)
        assert refused.reason == "failed", (bad, refused)
    found = await handle.describe()
    assert found.workflow_task.last_failure is not None
    assert await door.history(workflow_id) == ["workflow_execution_started"]
    await handle.terminate("seen")


async def test_a_result_too_large_for_its_event_is_recorded_as_a_failure(door: Bed) -> None:
    handle = await door.client.start_workflow("any", id="too-large", task_queue="nobody")
    [row] = await door.fetch(
        "SELECT shard_id, run_id::text FROM execution WHERE workflow_id = 'too-large'"
    )
    shard, run = row
    activity = commands.ScheduleActivity(
        command_id=1, activity_id="a", activity_type="x", task_queue="nobody"
    )
    async with linked(door) as liar:
        await liar.say(wire.ClaimWorkflowTask(1, shard, run, 1))
        task = await liar.hear(wire.WorkflowTaskGranted)
        await liar.say(
            wire.ReportWorkflowTask(
                2,
                "r",
                shard,
                run,
                1,
                task.task_token,
                task.upper_event_id,
                task.time_us,
                (activity,),
            ),
            wire.ClaimActivityTask(3, shard, run, 1, 1, "mine"),
        )
        await liar.hear(wire.ActivityTaskGranted)
        outcome = wire.ActivityOutcome("completed", Payload("json", b"1" * 2_000_000))
        await liar.say(wire.ReportActivityTask(4, shard, run, 1, 1, "mine", outcome))
        assert (await liar.hear(wire.ActivityReportAnswered)).accepted
    assert "activity_task_failed" in await door.history("too-large")
    await handle.terminate("seen")


async def test_a_peer_that_lies_about_shards_and_requests_is_not_believed(door: Bed) -> None:
    lies = tuple(
        wire.ShardEntry(shard, "nobody", range_id)
        for shard in (0, 1, 2, 3, 8, 500, 2**31 - 1)
        for range_id in (0, 2**40, 2**62)
    )
    bad: list[requests.ClientRequest] = [
        requests.StartWorkflow(workflow_id="a\0b", request_id="r", workflow_type="t"),
        requests.StartWorkflow(workflow_id="a", request_id="r", workflow_type="\0"),
        requests.StartWorkflow(workflow_id="a", request_id="r", workflow_type="t", origin="\0"),
        requests.StartWorkflow(workflow_id="", request_id="", workflow_type=""),
        requests.StartWorkflow(
            workflow_id="a", request_id="r", workflow_type="t", run_timeout_ms=2**62
        ),
        requests.SignalWorkflow(workflow_id="a", run_id="x", request_id="r", name="\0"),
        requests.TerminateWorkflow(workflow_id="a", request_id="r", reason="x" * 10**6),
        requests.WaitWorkflow(workflow_id="a", wait_ms=-5),
    ]
    async with linked(door, PEER_PATH) as liar:
        await liar.say(wire.PeerHello(1, "liar", "liar", lies), wire.ShardMap(lies))
        await liar.say(*(wire.ReleaseTold(n, 2**62) for n in range(20)))
        await liar.say(*(wire.Forward(seq, 0, 1_000, one) for seq, one in enumerate(bad, 1)))
        refused: list[wire.ForwardFailed] = []
        async with asyncio.timeout(5):
            while len(refused) < len(bad):
                frame = await liar.socket.receive()
                refused += [
                    one
                    for one in wire.decode_between_engines(frame.data)
                    if isinstance(one, wire.ForwardFailed)
                ]
    assert {one.code for one in refused} == {"INVALID_ARGUMENT"}
    await assert_alive(door)
    async with aiohttp.request("GET", f"{door.addresses[0]}/v1/shards") as answer:
        shards = (await answer.json())["items"]
    assert len(shards) == door.shard_count
    assert all(one["incarnation"] != "nobody" for one in shards)
    async with linked(door, greet=False) as liar:
        await liar.say(hello(liar.name))
        told = (await liar.hear(wire.Welcome)).shards
    assert {one.shard_id for one in told} <= set(range(door.shard_count))


async def test_an_answer_larger_than_a_frame_goes_in_part_and_says_so(door: Bed) -> None:
    handle = await door.client.start_workflow("any", id="large-answer", task_queue="nobody")
    [row] = await door.fetch(
        "SELECT shard_id, run_id::text FROM execution WHERE workflow_id = 'large-answer'"
    )
    shard, run = row
    async with linked(door) as liar:
        await liar.say(wire.ClaimWorkflowTask(1, shard, run, 1))
        task = await liar.hear(wire.WorkflowTaskGranted)
        for _ in range(20):
            await handle.signal("go", "s" * 250_000)
        await liar.say(
            wire.ReportWorkflowTask(2, "r", shard, run, 1, task.task_token, 1, task.time_us, ())
        )
        accepted = await liar.hear(wire.WorkflowTaskAccepted)
        assert not accepted.complete
        assert accepted.events[0].event_id == 2
        held = accepted.events[-1].event_id
        while held < 22:
            await liar.say(wire.FetchHistory(3, shard, run, held, 22))
            events = (await liar.hear(wire.HistoryPage)).events
            assert [one.event_id for one in events][:1] == [held + 1]
            held = events[-1].event_id
    await handle.terminate("seen")
