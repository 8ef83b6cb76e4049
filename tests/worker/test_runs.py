"""What runs in memory do over time, with a clock that the test moves and no socket."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from odin.core import events as e
from odin.core import wire
from odin.core.commands import ScheduleActivity
from odin.runtime.ids import SeededIds
from odin.worker import Tally, WorkerOptions
from odin.worker.desk import Desk
from odin.worker.registry import Registry
from odin.worker.runs import WARM_WITHOUT_ANSWER_SECONDS
from tests.worker.peer import History, scheduled
from tests.worker.scene import greeting, in_a_thread


class OneEngine:
    """The engines of a desk: one, which owns every shard and keeps what it is asked."""

    linked = 1

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Callable[[object], None]]] = []
        self.told: list[object] = []
        self._seq = itertools.count(1)

    def owner(self, _: int) -> "OneEngine":
        return self

    def learn(self, _: object) -> None:
        """Know nothing of shards."""

    def send(self, message: object) -> bool:
        self.told.append(message)
        return True

    def request(self, make: Callable[[int], object], on_answer: Callable[[object], None]) -> int:
        seq = next(self._seq)
        self.asked.append((make(seq), on_answer))
        return seq


class Scene:
    """A desk with its one engine."""

    def __init__(self) -> None:
        self.now = 0.0
        self.engine = OneEngine()
        self.desk = Desk(
            WorkerOptions(broker="embedded"),
            Registry([greeting], [in_a_thread]),
            Tally(),
            SeededIds(1),
            now=lambda: self.now,
            executor=_no_threads,
        )
        self.desk.engines = self.engine  # type: ignore[assignment] # as much of it as is used

    def asked(self) -> Any:  # noqa: ANN401 - a wire message
        return self.engine.asked[-1][0]

    async def answer(self, answer: object) -> None:
        self.engine.asked.pop()[1](answer)
        await asyncio.sleep(0)

    async def reported(self, history: History) -> wire.ReportWorkflowTask:
        """Bring a run to its first report."""
        self.desk.take(None, [history.task()])
        await self.answer(history.granted(self.asked()))
        report = self.asked()
        assert isinstance(report, wire.ReportWorkflowTask)
        return report


def _no_threads() -> Any:  # noqa: ANN401 - never called
    raise AssertionError("nothing here runs in threads")


async def test_without_an_answer_the_warm_state_goes_and_the_report_stays() -> None:
    scene = Scene()
    history = History("greeting", "you")
    report = await scene.reported(history)
    scene.now += WARM_WITHOUT_ANSWER_SECONDS - 0.1
    scene.desk.tick_slowly()
    assert scene.desk.runs.warm_count == 1
    scene.now += 0.2
    scene.desk.tick_slowly()
    assert scene.desk.runs.warm_count == 0
    scene.engine.asked.clear()
    scene.desk.shards_moved({history.header.shard_id})
    again = scene.asked()
    assert (again.report_id, again.commands) == (report.report_id, report.commands)
    assert not again.sticky
    command = again.commands[0]
    assert isinstance(command, ScheduleActivity)
    await scene.answer(history.accept(again, scheduled(command)))
    assert any(isinstance(one, wire.Evicted) for one in scene.engine.told)
    assert len(scene.desk.postbox) == 0


async def test_a_task_that_comes_while_a_report_is_unanswered_is_claimed_after_it() -> None:
    scene = Scene()
    history = History("greeting", "you")
    report = await scene.reported(history)
    acks: list[str] = []

    class Message:
        def ack(self) -> None:
            acks.append("acknowledged")

    scene.desk.take(Message(), [history.task(2)])
    assert acks == ["acknowledged"]
    assert isinstance(scene.asked(), wire.ReportWorkflowTask)
    command = report.commands[0]
    assert isinstance(command, ScheduleActivity)
    await scene.answer(history.accept(report, scheduled(command)))
    claim = scene.asked()
    assert isinstance(claim, wire.ClaimWorkflowTask)
    assert (claim.number, claim.token) == (2, history.token)


async def test_a_state_that_ran_ahead_has_no_token_until_its_report_is_accepted() -> None:
    scene = Scene()
    history = History("greeting", "you")
    report = await scene.reported(history)
    assert scene.desk.inventory(None).warm == ()
    command = report.commands[0]
    assert isinstance(command, ScheduleActivity)
    await scene.answer(history.accept(report, scheduled(command)))
    (warm,) = scene.desk.inventory(None).warm
    assert (warm.token, warm.last_event_id) == (history.token, history.last_id)
    history.append(e.WorkflowExecutionSignaled(name="x"))
    scene.desk.engine_message(None, history.push(2, history.last_id - 1))  # type: ignore[arg-type] # the link is unused
    await asyncio.sleep(0)
    assert isinstance(scene.asked(), wire.ReportWorkflowTask)
    assert scene.desk.inventory(None).warm == ()


async def test_an_answer_that_does_not_fit_what_ran_drops_the_run() -> None:
    scene = Scene()
    history = History("greeting", "you")
    report = await scene.reported(history)
    foreign = History("greeting", "you")
    command = report.commands[0]
    assert isinstance(command, ScheduleActivity)
    changed = wire.ReportWorkflowTask(
        report.seq, "x", report.shard_id, report.run_id, 1, 1, report.seen, 5, report.commands
    )
    await scene.answer(foreign.accept(changed, scheduled(command)))
    assert scene.desk.runs.warm_count == 0
    assert any(isinstance(one, wire.Evicted) for one in scene.engine.told)
