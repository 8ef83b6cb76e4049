"""Workflow tasks against an engine's end of the link."""

import pytest

from odin.core import events as e
from odin.core import wire
from odin.core.commands import CompleteWorkflow, ScheduleActivity
from odin.core.payload import decode
from tests.worker.peer import NOW_US, SHARD, History, peer, scheduled
from tests.worker.scene import OTHER_RUN, finish_activity, run_first_task, until, worker_of


async def test_a_workflow_with_two_activities_runs_from_claim_to_close() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine) as worker:
            hello = await engine.hear(wire.Hello)
            assert hello.worker == worker.incarnation
            assert hello.workflow_types == ("greeting",)
            assert (await engine.hear(wire.Inventory)).shards is None
            history = History("greeting", "you")
            command = await run_first_task(engine, history)
            await finish_activity(engine, history, command)
            engine.say(history.push(2, history.last_id - 1))
            report = await engine.hear(wire.ReportWorkflowTask)
            assert report.seen == history.last_id
            second = report.commands[0]
            assert isinstance(second, ScheduleActivity)
            engine.say(history.accept(report, scheduled(second)))
            await finish_activity(engine, history, second)
            engine.say(history.push(3, history.last_id - 1))
            report = await engine.hear(wire.ReportWorkflowTask)
            closing = report.commands[0]
            assert isinstance(closing, CompleteWorkflow)
            assert decode(closing.result) == "hello hello you"
            recorded = e.WorkflowExecutionCompleted(result=closing.result)
            engine.say(history.accept(report, recorded, closed=True))
            await until(lambda: worker.desk.runs.warm_count == 0)


async def test_a_refused_report_drops_the_warm_state_and_the_next_task_replays() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            history = History("greeting", "you")
            await engine.hear(wire.Inventory)
            command = await run_first_task(engine, history)
            await finish_activity(engine, history, command)
            engine.say(history.push(2, history.last_id - 1))
            report = await engine.hear(wire.ReportWorkflowTask)
            engine.say(wire.WorkflowTaskRefused(report.seq, "unseen"))
            await engine.hear(wire.Evicted)
            engine.say(wire.Tasks(5, "default", (history.task(2),)))
            claim = await engine.hear(wire.ClaimWorkflowTask)
            assert claim.token is None
            engine.say(history.granted(claim))
            again = await engine.hear(wire.ReportWorkflowTask)
            assert again.commands == report.commands
            assert again.report_id != report.report_id


async def test_a_push_is_discarded_while_a_report_is_unanswered() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            history = History("greeting", "you")
            await engine.hear(wire.Inventory)
            command = await run_first_task(engine, history)
            await finish_activity(engine, history, command)
            engine.say(history.push(2, history.last_id - 1))
            report = await engine.hear(wire.ReportWorkflowTask)
            seen = history.last_id
            history.append(e.WorkflowExecutionSignaled(name="late"))
            engine.say(history.push(3, seen))
            with pytest.raises(TimeoutError):
                await engine.hear(wire.ReportWorkflowTaskFailure, seconds=0.1)
            engine.say(history.accept(report, scheduled(report.commands[0])))  # type: ignore[arg-type] # it is one
            engine.say(history.push(3, history.last_id))
            second = await engine.hear(wire.ReportWorkflowTask)
            assert (second.number, second.seen) == (3, history.last_id)
            assert not engine.heard(wire.ReportWorkflowTask)


async def test_a_push_for_a_run_that_is_not_warm_fetches_its_history() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            history.append(*(e.WorkflowExecutionSignaled(name="x") for _ in range(9)))
            engine.say(history.push(1, history.last_id - 1))
            for last in (4, 8, 10):
                fetch = await engine.hear(wire.FetchHistory)
                assert fetch.upper_event_id == 10
                page = tuple(history.events[fetch.after_event_id : last])
                engine.say(wire.HistoryPage(fetch.seq, page))
            assert (await engine.hear(wire.ReportWorkflowTask)).seen == 10


async def test_the_oldest_run_is_evicted_when_the_cache_is_full_and_told() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine, max_cached_workflows=1) as worker:
            await engine.hear(wire.Inventory)
            one, two = History("greeting", "you"), History("greeting", "x", run_id=OTHER_RUN)
            await run_first_task(engine, one)
            await run_first_task(engine, two)
            assert (await engine.hear(wire.Evicted)).run_id == one.header.run_id
            await until(lambda: worker.desk.runs.warm_count == 1)


async def test_a_warm_run_names_its_token_and_is_granted_only_what_follows() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            command = await run_first_task(engine, history)
            held, token = history.last_id, history.token
            await finish_activity(engine, history, command)
            engine.say(wire.Tasks(3, "default", (history.task(2),)))
            claim = await engine.hear(wire.ClaimWorkflowTask)
            assert (claim.token, claim.last_event_id) == (token, held)
            events = tuple(history.events[held:])
            engine.say(history.granted(claim, events=events, from_start=False))
            assert (await engine.hear(wire.ReportWorkflowTask)).seen == history.last_id


async def test_an_unknown_workflow_type_fails_the_task_and_names_the_known_ones() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("unheard-of")
            engine.say(wire.Tasks(1, "default", (history.task(),)))
            engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
            failed = await engine.hear(wire.ReportWorkflowTaskFailure)
            assert "greeting" in failed.failure.message
            assert failed.task_token == history.task_token


async def test_code_that_no_longer_fits_the_history_fails_the_task() -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            history.append(
                e.WorkflowTaskCompleted(seen=1, time_us=NOW_US, worker="w"),
                e.TimerStarted(command_id=1, duration_ms=5, fires_at_us=NOW_US),
                e.TimerFired(command_id=1),
            )
            engine.say(wire.Tasks(1, "default", (history.task(2),)))
            engine.say(history.granted(await engine.hear(wire.ClaimWorkflowTask)))
            failed = await engine.hear(wire.ReportWorkflowTaskFailure)
            assert failed.failure.type == "NondeterminismError"
