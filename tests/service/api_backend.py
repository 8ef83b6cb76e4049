"""An engine in memory, just enough of one for the tests of the API and of the client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.api.backend import ListFilter
from engine.api.views import (
    CheckView,
    ClusterView,
    ExecutionSummary,
    ExecutionView,
    HistoryPageView,
    MetricView,
    NodeView,
    OwnerView,
    Page,
    ReadyView,
    ShardView,
    WorkerView,
    WorkflowTaskView,
    instant,
    value_of,
)
from odin.core.events import (
    ActivityTaskScheduled,
    Event,
    HistoryEvent,
    WorkflowExecutionCompleted,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    to_history,
)
from odin.core.payload import Failure, Payload
from odin.core.requests import (
    Accepted,
    ClientRequest,
    Outcome,
    RequestCancelWorkflow,
    SignalWorkflow,
    Started,
    StartWorkflow,
    TerminateWorkflow,
    WaitWorkflow,
)
from odin.errors import NotFoundError, OdinError, WorkflowAlreadyStartedError
from odin.proof import Certificate, Chain, RunRows, certify
from odin.runtime.ids import SeededIds

if TYPE_CHECKING:
    from collections.abc import Callable

STARTED_US = 1_780_000_000_000_000


@dataclass
class Run:
    """A run in memory."""

    start: StartWorkflow
    run_id: str
    events: list[HistoryEvent] = field(default_factory=list)
    outcome: Outcome | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, event: Event) -> int:
        """Add an event and return its id."""
        event_id = len(self.events) + 1
        self.events.append(to_history(event, event_id, STARTED_US + event_id * 250_000))
        return event_id

    def close(
        self, status: str, result: Payload | None = None, failure: Failure | None = None
    ) -> None:
        """End the run."""
        self.outcome = Outcome(run_id=self.run_id, status=status, result=result, failure=failure)
        if result is not None:
            self.append(WorkflowExecutionCompleted(result=result))
        self.closed.set()


class MemoryBackend:
    """Keeps runs in a dict. `before` may raise or wait in front of any request."""

    def __init__(self) -> None:
        self.asked: list[ClientRequest] = []
        self.timeouts: list[int] = []
        self.filters: list[ListFilter] = []
        self.runs: dict[str, Run] = {}
        self.answers: dict[str, Started | Accepted] = {}
        self.before: Callable[[ClientRequest], OdinError | None] = lambda _: None
        self.is_ready = True
        self._ids = SeededIds(7)

    async def ask(self, request: ClientRequest, timeout_ms: int) -> Started | Accepted | Outcome:
        self.asked.append(request)
        self.timeouts.append(timeout_ms)
        if (error := self.before(request)) is not None:
            raise error
        if isinstance(request, WaitWorkflow):
            return await self._wait(request)
        if (known := self.answers.get(request.request_id)) is not None:
            return known
        answer = self._start(request) if isinstance(request, StartWorkflow) else self._tell(request)
        self.answers[request.request_id] = answer
        return answer

    def _start(self, request: StartWorkflow) -> Started:
        known = self.runs.get(request.workflow_id)
        if known is not None and known.outcome is None:
            raise WorkflowAlreadyStartedError(
                f"{request.workflow_id} runs already", details={"run_id": known.run_id}
            )
        run = Run(request, self._ids.run_id())
        run.append(
            WorkflowExecutionStarted(
                workflow_type=request.workflow_type,
                task_queue=request.task_queue,
                input=request.input,
                first_run_id=run.run_id,
            )
        )
        run.append(
            ActivityTaskScheduled(
                command_id=1, activity_id="1", activity_type="charge", task_queue="default"
            )
        )
        self.runs[request.workflow_id] = run
        return Started(run_id=run.run_id, first_run_id=run.run_id, started=True)

    def _tell(
        self, request: SignalWorkflow | RequestCancelWorkflow | TerminateWorkflow
    ) -> Accepted:
        run = self._run(request.workflow_id)
        if isinstance(request, SignalWorkflow):
            event_id = run.append(WorkflowExecutionSignaled(name=request.name, input=request.input))
            return Accepted(run_id=run.run_id, event_id=event_id)
        if isinstance(request, TerminateWorkflow):
            run.close("terminated", failure=Failure(request.reason, "terminated"))
        else:
            run.close("canceled")
        return Accepted(run_id=run.run_id, event_id=len(run.events))

    async def _wait(self, request: WaitWorkflow) -> Outcome:
        run = self._run(request.workflow_id)
        try:
            async with asyncio.timeout(request.wait_ms / 1_000):
                await run.closed.wait()
        except TimeoutError:
            return Outcome(run_id=run.run_id, status="running")
        assert run.outcome is not None
        return run.outcome

    def _run(self, workflow_id: str, run_id: str | None = None) -> Run:
        run = self.runs.get(workflow_id)
        if run is None or run_id not in (None, run.run_id):
            raise NotFoundError(f"there is no execution {workflow_id!r}")
        return run

    async def describe(self, namespace: str, workflow_id: str, run_id: str | None) -> ExecutionView:
        run = self._run(workflow_id, run_id)
        return ExecutionView(
            namespace=namespace,
            workflow_id=workflow_id,
            run_id=run.run_id,
            first_run_id=run.run_id,
            workflow_type=run.start.workflow_type,
            task_queue=run.start.task_queue,
            status=run.outcome.status if run.outcome else "running",
            started_at=instant(STARTED_US),
            history_length=len(run.events),
            owner=OwnerView(shard_id=3, range_id=9, node_id="engine-1"),
            workflow_task=WorkflowTaskView(state="scheduled", number=1, attempt=1),
            input=tuple(value_of(one) for one in run.start.input),
        )

    async def proof(self, namespace: str, workflow_id: str, run_id: str | None) -> Certificate:
        run = self._run(workflow_id, run_id)
        rows = RunRows(run_id=run.run_id, execution=None, events=(), read_at_us=STARTED_US)
        return certify(Chain(namespace=namespace, workflow_id=workflow_id, runs=(rows,)))

    async def list_executions(
        self, which: ListFilter, cursor: str | None, limit: int
    ) -> Page[ExecutionSummary]:
        self.filters.append(which)
        first = int(cursor or 0)
        runs = list(self.runs.values())[::-1]
        items = tuple(
            ExecutionSummary(
                namespace=which.namespace,
                workflow_id=run.start.workflow_id,
                run_id=run.run_id,
                workflow_type=run.start.workflow_type,
                task_queue=run.start.task_queue,
                status=run.outcome.status if run.outcome else "running",
                started_at=instant(STARTED_US),
            )
            for run in runs[first : first + limit]
        )
        more = first + limit < len(runs)
        return Page(items=items, next_cursor=str(first + limit) if more else None)

    async def history(  # noqa: PLR0913 - as the protocol has it
        self,
        namespace: str,
        workflow_id: str,
        run_id: str | None,
        *,
        after: int | None,
        before: int | None,
        limit: int,
        newest_first: bool,
    ) -> HistoryPageView:
        assert namespace == "default"
        run = self._run(workflow_id, run_id)
        found = [
            one
            for one in run.events
            if (after is None or one.event_id > after) and (before is None or one.event_id < before)
        ]
        found = found[::-1] if newest_first else found
        return HistoryPageView(
            run_id=run.run_id, events=tuple(found[:limit]), has_more=len(found) > limit
        )

    def cluster(self) -> ClusterView:
        node = NodeView(node_id="engine-1", incarnation="a" * 16, address="http://x", state="alive")
        return ClusterView(
            mode="sharded", broker="embedded", shard_count=64, node_id="engine-1", nodes=(node,)
        )

    def shards(self) -> list[ShardView]:
        return [ShardView(shard_id=one, range_id=1, node_id="engine-1") for one in range(4)]

    def workers(self) -> list[WorkerView]:
        return [WorkerView(name="worker-1", incarnation="b" * 16, namespace="default")]

    def metrics(self) -> list[MetricView]:
        return [MetricView(name="odin_shard_owned", value=4, labels={"node": 'e"1'}, help="Owned.")]

    def ready(self) -> ReadyView:
        return ReadyView(ok=self.is_ready, checks={"lease": CheckView(ok=self.is_ready)})
