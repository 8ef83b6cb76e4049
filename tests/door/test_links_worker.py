"""Links into a real worker: engines that are damaged, or lie."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.core import events as e
from odin.core import wire
from odin.core.instance import Instance
from odin.core.payload import Payload
from odin.worker import Worker
from tests.core.struct_strategies import instances
from tests.worker.peer import NOW_US, SHARD, History, Peer, peer
from tests.worker.scene import finish_activity, run_first_task, worker_of

RUNS = iter(range(1, 10_000))


def new_history(*arguments: object) -> History:
    run_id = f"01890000-0000-7000-8000-{next(RUNS):012d}"
    return History("greeting", *(arguments or ("you",)), run_id=run_id)


async def assert_works(engine: Peer) -> None:
    """The worker carries a run to its end for this engine."""
    history = new_history()
    command = await run_first_task(engine, history)
    await finish_activity(engine, history, command)
    engine.say(history.push(2, history.last_id - 1))
    report = await engine.hear(
        wire.ReportWorkflowTask, lambda one: one.run_id == history.header.run_id
    )
    assert report.number == 2


@contextlib.asynccontextmanager
async def scene() -> Any:  # noqa: ANN401 - a generator of engine and worker
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine) as worker:
            await engine.hear(wire.Inventory)
            yield engine, worker


async def test_random_frames_end_their_link_and_the_worker_comes_back() -> None:
    async with scene() as (engine, _):
        for frame in (b"", b"\xc1", b"\x91\x91\xa4nope", b"\x91\x91\xa4ping", b"\x80" * 50):
            await engine.links[-1]._socket.send_bytes(frame)  # noqa: SLF001 - below the link
            await engine.hear(wire.Hello, seconds=10)
            await engine.hear(wire.Inventory, seconds=10)
        await assert_works(engine)


async def test_any_message_of_the_right_shape_leaves_the_worker_working() -> None:
    kinds = [kind for kind in get_args(wire.ToWorker) if kind not in (wire.Welcome, wire.ShardMap)]
    strategy = st.lists(st.sampled_from(kinds).flatmap(instances), min_size=20, max_size=20)
    async with scene() as (engine, worker):
        for messages in samples(strategy, 20):
            for message in messages:
                if engine.links:
                    engine.links[-1].send(message)
            await asyncio.sleep(0)
        async with asyncio.timeout(15):
            while not engine.links:
                await asyncio.sleep(0.01)
            # what was heard before is of the lies
            await asyncio.sleep(0.2)
            engine.said.clear()
        assert isinstance(worker, Worker)
        await assert_works(engine)


def samples(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return values of a strategy, the same ones in every run."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(value=strategy)
    def draw(value: object) -> None:
        found.append(value)

    draw()
    return found


BAD_EVENTS: dict[str, list[e.HistoryEvent]] = {
    "damaged attributes": [e.HistoryEvent(1, "workflow_execution_started", NOW_US, b"\xc1")],
    "unknown type": [e.HistoryEvent(1, "what_is_this", NOW_US, b"\x80")],
    "no beginning": [e.to_history(e.TimerFired(command_id=5), 1, NOW_US)],
    "an input that is no JSON": [
        e.to_history(
            e.WorkflowExecutionStarted(
                workflow_type="greeting",
                task_queue="default",
                input=(Payload("json", b"{"),),
                first_run_id="x",
            ),
            1,
            NOW_US,
        )
    ],
    "an input of an unknown encoding": [
        e.to_history(
            e.WorkflowExecutionStarted(
                workflow_type="greeting",
                task_queue="default",
                input=(Payload("pickle", b"cos\nsystem"),),
                first_run_id="x",
            ),
            1,
            NOW_US,
        )
    ],
}


@pytest.mark.parametrize("what", BAD_EVENTS)
async def test_a_history_that_cannot_be_read_fails_the_task_visibly_and_blocks_nothing(
    what: str,
) -> None:
    events = tuple(BAD_EVENTS[what])
    async with scene() as (engine, _):
        history = new_history()
        engine.say(wire.Tasks(1, "default", (history.task(),)))
        claim = await engine.hear(wire.ClaimWorkflowTask)
        engine.say(history.granted(claim, events=events, upper_event_id=len(events)))
        report = await engine.hear(wire.ReportWorkflowTaskFailure)
        assert report.failure.message
        engine.say(wire.WorkflowTaskRefused(report.seq, "failed"))
        await assert_works(engine)


async def test_a_fault_of_the_worker_itself_fails_the_task_and_freezes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Instance, __: object) -> None:
        raise LookupError("a fault of our own")

    async with scene() as (engine, _):
        with monkeypatch.context() as patch:
            patch.setattr(Instance, "apply", broken)
            history = new_history()
            engine.say(wire.Tasks(1, "default", (history.task(),)))
            engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
            report = await engine.hear(wire.ReportWorkflowTaskFailure)
            assert "a fault of our own" in report.failure.message
            engine.say(wire.WorkflowTaskRefused(report.seq, "failed"))
        await assert_works(engine)


async def test_an_accepted_report_without_all_of_its_events_lets_go_of_the_run() -> None:
    async with scene() as (engine, _):
        history = new_history()
        engine.say(wire.Tasks(1, "default", (history.task(),)))
        engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
        report = await engine.hear(wire.ReportWorkflowTask)
        engine.say(wire.WorkflowTaskAccepted(report.seq, (), 5, complete=False))
        evicted = await engine.hear(wire.Evicted)
        assert evicted.run_id == history.header.run_id
        await assert_works(engine)


async def test_an_answer_that_does_not_fit_lets_go_of_the_run() -> None:
    async with scene() as (engine, _):
        history = new_history()
        engine.say(wire.Tasks(1, "default", (history.task(),)))
        engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
        report = await engine.hear(wire.ReportWorkflowTask)
        garbage = (e.HistoryEvent(2, "workflow_task_completed", NOW_US, b"\xc1"),)
        engine.say(wire.WorkflowTaskAccepted(report.seq, garbage, 5))
        await engine.hear(wire.Evicted)
        await assert_works(engine)


async def test_an_engine_of_another_version_is_left_alone() -> None:
    async with peer() as engine:
        engine.greets = False
        async with worker_of(engine):
            await engine.hear(wire.Hello)
            engine.say(wire.Welcome(99, "x", "n", 64, (), ()))
            await engine.hear(wire.Hello, seconds=10)  # closed, and tried again
