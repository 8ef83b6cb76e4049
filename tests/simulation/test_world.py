"""The world itself: it works without faults, and its network, broker and judge do what they say."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from odin.core.events import TimerFired, WorkflowExecutionSignaled, WorkflowTaskCompleted
from odin.core.requests import Accepted, SignalWorkflow, Started, StartWorkflow
from odin.core.topology import DEAD_LETTERS, dead_letter_queue, task_queue
from odin.errors import NotPublishedError
from odin.runtime.links import LinkClosedError
from tests.simulation.auditor import CLAIMS, judge
from tests.simulation.broker import HOST, Mischief
from tests.simulation.broker_client import Consumer, Delivery, Publisher
from tests.simulation.evidence import CallRow, EventRow, Evidence, TermRow, gather
from tests.simulation.network import Door, WebSocket
from tests.simulation.seams import sealed
from tests.simulation.world import Shape, World

CALM = Shape(fault_seconds=2.0, order_seconds=1.0)


def in_world(body: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    """Run `body` in a process of a world in which nothing else lives."""
    world = World(1, replace(CALM, orders=0))
    process = world.new_process("c0", 1)

    async def main() -> None:
        await process.create_task(body(world), name="body")

    with sealed():
        world.loop.run_until(main(), 300.0)
        world.loop.close()
    return world


# --- the whole ------------------------------------------------------------------------------------


def test_one_engine_and_one_worker_finish_every_order_without_faults() -> None:
    world = World(1, replace(CALM, engines=1, workers=1))
    verdict = world.run()
    assert verdict.complaints == []
    evidence = gather(world, [])
    assert evidence.is_finished
    assert len(evidence.effects) > 3
    assert {run.status for run in evidence.runs} >= {"completed"}


def test_three_engines_share_the_shards_and_finish_every_order() -> None:
    world = World(2, CALM)
    verdict = world.run()
    assert verdict.complaints == []
    owners = {row.owner for row in world.database.tables.shard.values()}
    assert len(owners) > 1


# --- the network ----------------------------------------------------------------------------------


async def _echo(path: str, websocket: WebSocket) -> None:
    await websocket.accept()
    while (event := await websocket.receive())["type"] == "websocket.receive":
        await websocket.send({"type": "websocket.send", "bytes": event["bytes"]})


async def _open_door(world: World) -> asyncio.Task[None]:
    process = world.new_process("e0", 1)

    async def answer(request: object, seconds: float) -> object:
        return request

    door = Door(process, _echo, answer, asyncio.Queue())
    world.network.doors[world.engines[0].address] = door

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                work = await door.work.get()
                group.create_task(work())  # type: ignore[arg-type]  # a coroutine

    return process.create_task(serve(), name="door")


def test_a_link_keeps_its_order_through_a_blocked_direction_and_ends_with_a_cut() -> None:
    async def body(world: World) -> None:
        door = await _open_door(world)
        network = world.network
        end = await network.connect(world.engines[0].address, "/")
        network.block("c0", "e0")
        for number in range(20):
            await end.send_bytes(bytes([number]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await end.receive_bytes()
        network.unblock("c0", "e0")
        assert [await end.receive_bytes() for _ in range(20)] == [bytes([n]) for n in range(20)]
        assert network.cut("c0", "e0") == 1
        assert await end.receive_bytes() is None
        with pytest.raises(ConnectionResetError):
            await end.send_bytes(b"")
        door.cancel()

    in_world(body)


def test_nobody_answers_where_nobody_listens_and_what_is_lost_is_told() -> None:
    async def body(world: World) -> None:
        network, address = world.network, world.engines[0].address
        with pytest.raises(LinkClosedError):
            await network.connect(address, "/")
        with pytest.raises(ConnectionRefusedError):
            await network.call(address, "?", 1.0)
        door = await _open_door(world)
        assert await network.call(address, "?", 1.0) == "?"
        network.block("e0", "c0")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await network.call(address, "?", 1.0)
        door.cancel()

    in_world(body)


# --- the broker -----------------------------------------------------------------------------------


def with_broker(
    body: Callable[[World, Publisher, list[Delivery]], Coroutine[Any, Any, None]],
) -> World:
    """Run `body` with a publisher and a consumer of the queue "w:q"."""

    async def inside(world: World) -> None:
        stop = asyncio.Event()
        got: list[Delivery] = []
        publisher = Publisher("")
        queues = [task_queue("w", "q"), dead_letter_queue()]
        consumer = Consumer("", queues, 2, got.append)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one.run(stop)) for one in (publisher, consumer)]
            await body(world, publisher, got)
            stop.set()
            await asyncio.wait(running)

    return in_world(inside)


def test_a_confirmed_message_comes_once_and_no_more_than_the_prefetch_at_a_time() -> None:
    async def body(world: World, publisher: Publisher, got: list[Delivery]) -> None:
        for number in range(5):
            await publisher.publish("w:q", b"%d" % number, str(number))
        await asyncio.sleep(5)
        assert [one.body for one in got] == [b"0", b"1"]
        for number in range(5):
            got[number].ack()
            await asyncio.sleep(1)
        assert [one.body for one in got] == [b"0", b"1", b"2", b"3", b"4"]
        assert not any(one.redelivered for one in got)

    with_broker(body)


def test_what_is_not_acknowledged_comes_again_and_is_a_dead_letter_in_the_end() -> None:
    async def body(world: World, publisher: Publisher, got: list[Delivery]) -> None:
        await publisher.publish("w:q", b"x", "1")
        for _ in range(25):
            await asyncio.sleep(3)
            world.network.cut("c0", HOST)
        await asyncio.sleep(3)
        assert [one.queue for one in got].count(DEAD_LETTERS) >= 1
        assert got[1].redelivered
        assert got[-1].headers["x-first-death-reason"] == "delivery_limit"

    with_broker(body)


@pytest.mark.parametrize(
    ("mischief", "maybe_sent", "copies"),
    [
        (Mischief(returned=1.0), False, 0),
        (Mischief(lost=1.0), True, 0),
        (Mischief(unconfirmed=1.0), True, 1),
        (Mischief(lost_after_confirm=1.0), None, 0),
        (Mischief(twice=1.0), None, 2),
    ],
)
def test_the_broker_does_what_brokers_do(
    mischief: Mischief, maybe_sent: object, copies: int
) -> None:
    async def body(world: World, publisher: Publisher, got: list[Delivery]) -> None:
        world.broker.mischief = mischief
        if maybe_sent is None:
            await publisher.publish("w:q", b"x", "1")
        else:
            with pytest.raises(NotPublishedError) as caught:
                await publisher.publish("w:q", b"x", "1")
            assert caught.value.maybe_sent is maybe_sent
        await asyncio.sleep(1)
        assert len(got) == copies

    with_broker(body)


def test_nothing_is_published_while_the_broker_is_down_and_what_waits_survives_it() -> None:
    async def body(world: World, publisher: Publisher, got: list[Delivery]) -> None:
        world.broker.stop()
        with pytest.raises(NotPublishedError) as caught:
            await publisher.publish("w:q", b"x", "1")
        assert not caught.value.maybe_sent
        world.broker.start()
        await asyncio.sleep(5)
        await publisher.publish("w:q", b"x", "2")
        await asyncio.sleep(1)
        assert [one.message_id for one in got] == ["2"]

    with_broker(body)


# --- the judge ------------------------------------------------------------------------------------


def _spoil_gap(evidence: Evidence) -> None:
    evidence.events.pop(1)


def _spoil_shape(evidence: Evidence) -> None:
    evidence.runs[0] = replace(evidence.runs[0], status="running")


def _spoil_resolution(evidence: Evidence) -> None:
    row = next(row for row in evidence.events if row.type == "activity_task_completed")
    evidence.events.append(replace(row, event_id=10_000))


def _spoil_fence(evidence: Evidence) -> None:
    evidence.events[0] = replace(evidence.events[0], range_id=99)


def _spoil_ranges(evidence: Evidence) -> None:
    evidence.terms.append(TermRow(0, 77, "acquired", "x", 10_000))


def _spoil_open(evidence: Evidence) -> None:
    run = replace(evidence.runs[0], status="running")
    evidence.runs += [run, replace(run, run_id="twin")]


def _spoil_start(evidence: Evidence) -> None:
    request = StartWorkflow(workflow_id="x", request_id="r", workflow_type="t")
    answer = Started(run_id="gone", first_run_id="gone", started=True)
    evidence.calls.append(CallRow(request, answer, "", 0.0, 0.0))


def _spoil_signal(evidence: Evidence) -> None:
    request = SignalWorkflow(workflow_id=evidence.runs[0].workflow_id, request_id="r", name="n")
    answer = Accepted(run_id=evidence.runs[0].run_id, event_id=1)
    evidence.calls.append(CallRow(request, answer, "", 0.0, 0.0))


def _spoil_seen(evidence: Evidence) -> None:
    last = next(row for row in evidence.events if row.type == "workflow_execution_completed")
    unseen = WorkflowExecutionSignaled(name="n")
    evidence.events.remove(last)
    evidence.events.append(replace(last, type="workflow_execution_signaled", event=unseen))
    evidence.events.append(replace(last, event_id=last.event_id + 1))


def _spoil_tasks(evidence: Evidence) -> None:
    row = next(row for row in evidence.events if row.type == "workflow_task_completed")
    again = WorkflowTaskCompleted(seen=0, time_us=0, worker="w", task_number=1)
    evidence.events.append(replace(row, event_id=10_000, event=again))


def _spoil_timer(evidence: Evidence) -> None:
    row = next(row for row in evidence.events if row.type == "timer_started")
    fired = TimerFired(command_id=row.event.command_id)
    evidence.events.append(
        replace(row, event_id=10_000, type="timer_fired", committed_us=0, event=fired)
    )


def _spoil_effect(evidence: Evidence) -> None:
    evidence.effects["another key"] = next(iter(evidence.effects.values()))


def _spoil_completed(evidence: Evidence) -> None:
    evidence.effects.clear()


def _spoil_returned(evidence: Evidence) -> None:
    evidence.returned.clear()


def _spoil_lost(evidence: Evidence) -> None:
    at, row = next(
        (at, row)
        for at, row in enumerate(evidence.events)
        if row.type == "activity_task_completed" and row.event.attempts[0].how == "completed"
    )
    ended = msgspec.structs.replace(row.event.attempts[0], how="timed_out:start_to_close")
    event = msgspec.structs.replace(row.event, attempts=(ended,))
    evidence.events[at] = replace(row, event=event)


def _spoil_result(evidence: Evidence) -> None:
    evidence.results = dict.fromkeys(evidence.results, ("completed", "nonsense"))


def _spoil_finish(evidence: Evidence) -> None:
    evidence.outbox_count = 1


SPOILED = {
    "dense": _spoil_gap,
    "shaped": _spoil_shape,
    "resolved_once": _spoil_resolution,
    "fenced": _spoil_fence,
    "ranges_grow": _spoil_ranges,
    "one_open_run": _spoil_open,
    "starts_kept": _spoil_start,
    "signals_kept": _spoil_signal,
    "seen_before_closing": _spoil_seen,
    "tasks_in_turn": _spoil_tasks,
    "timers_not_early": _spoil_timer,
    "one_effect": _spoil_effect,
    "completed_had_effect": _spoil_completed,
    "completed_returned": _spoil_returned,
    "no_result_lost": _spoil_lost,
    "results_right": _spoil_result,
    "finished": _spoil_finish,
}


@pytest.fixture(scope="module")
def sound() -> World:
    world = World(4, replace(CALM, orders=12))
    assert world.run().complaints == []
    return world


@pytest.mark.parametrize("claim", [claim.__name__ for claim in CLAIMS])
def test_the_judge_can_say_no(claim: str, sound: World) -> None:
    evidence = gather(sound, [])
    assert judge(evidence) == []
    SPOILED[claim](evidence)
    assert any(one.startswith(f"{claim}:") for one in judge(evidence))
    assert isinstance(evidence.events[0], EventRow)
