import asyncio

from odin import activity, workflow
from odin.core import events as e
from odin.core import wire
from odin.core.commands import CompleteWorkflow, ScheduleActivity
from odin.core.payload import decode
from odin.worker import Worker

from .peer import SHARD, History, Peer, peer, scheduled


@activity.defn
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow.defn
async def greeting(name: str) -> str:
    first = await workflow.execute_activity(greet, name)
    return await workflow.execute_activity(greet, first)


def worker_of(*peers: Peer, **fields) -> Worker:
    fields = {"workflows": [greeting], "activities": [greet], "broker": "embedded"} | fields
    return Worker([one.address for one in peers], **fields)


async def run_first_task(engine: Peer, history: History) -> ScheduleActivity:
    engine.say(wire.Tasks(1, "default", (history.task(),)))
    claim = await engine.hear(wire.ClaimWorkflowTask)
    engine.say(history.granted(claim))
    report = await engine.hear(wire.ReportWorkflowTask)
    (command,) = report.commands
    engine.say(history.accept(report, scheduled(command)))
    return command


async def test_a_workflow_with_two_activities_runs_from_claim_to_close():
    async with peer() as engine:
        engine.owns(SHARD)
        async with worker_of(engine):
            await engine.hear(wire.Hello)
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            command = await run_first_task(engine, history)
            for number in (2, 3):
                engine.say(wire.Tasks(number, "default", (history.task(command.command_id, "a"),)))
                claim = await engine.hear(wire.ClaimActivityTask)
                argument = decode(command.input[0])
                engine.say(history.activity(claim, command.activity_type, argument))
                done = await engine.hear(wire.ReportActivityTask)
                assert done.claim_token == claim.claim_token
                assert done.outcome.result is not None
                engine.say(wire.ActivityReportAnswered(done.seq, accepted=True))
                after = history.last_id
                history.append(
                    e.ActivityTaskCompleted(
                        command_id=command.command_id, result=done.outcome.result
                    )
                )
                engine.say(history.push(number, after))
                report = await engine.hear(wire.ReportWorkflowTask)
                assert report.seen == history.last_id
                (command,) = report.commands
                if isinstance(command, ScheduleActivity):
                    engine.say(history.accept(report, scheduled(command)))
            assert isinstance(command, CompleteWorkflow)
            assert decode(command.result) == "hello hello you"
            closing = e.WorkflowExecutionCompleted(result=command.result)
            engine.say(history.accept(report, closing, closed=True))
            await asyncio.sleep(0)
