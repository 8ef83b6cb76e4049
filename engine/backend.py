"""The engine as its HTTP API sees it: requests through the router, reads straight from Postgres."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Final

import odin
from odin.core.events import WorkflowExecutionStarted, from_history
from odin.core.execution import Execution
from odin.core.ownership import NodeState
from odin.core.requests import Accepted, ClientRequest, Outcome, Started, StartWorkflow
from odin.errors import InvalidArgumentError, NotFoundError
from odin.proof import Certificate, certify

from .admission import Admission
from .api import ListFilter, execution_view
from .api.views import (
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
    instant,
)
from .closings import outcome_of
from .metrics import samples
from .node import Node
from .store.rows import run_id_of
from .store.values import ExecutionFilter
from .store.values import ExecutionSummary as SummaryRow

_STARTED: Final = re.compile(r"[0-9]{1,18}\Z", re.ASCII)


class EngineBackend:
    """Answers the API for one node."""

    def __init__(self, node: Node, admission: Admission, *, mode: str, broker: str) -> None:
        self._node = node
        self._admission = admission
        self._mode = mode
        self._broker = broker

    async def ask(self, request: ClientRequest, timeout_ms: int) -> Started | Accepted | Outcome:
        """Admit the request, have it decided by the owner, and return the committed answer."""
        if isinstance(request, StartWorkflow):
            await self._admission.admit(request.origin)
        return await self._node.router.ask(request, timeout_ms)

    async def describe(self, namespace: str, workflow_id: str, run_id: str | None) -> ExecutionView:
        """Return one run, with what is pending and how it ended."""
        shard_id, execution = await self._find(namespace, workflow_id, run_id)
        store = self._node.store
        first = await store.events(shard_id, execution.run_id, upto=1)
        started = from_history(first[0]) if first else None
        if not isinstance(started, WorkflowExecutionStarted):
            return execution_view(execution, self._owner(shard_id))
        outcome = None
        if not execution.is_open:
            newest = execution.next_event_id - 1
            last = await store.events(shard_id, execution.run_id, after=newest - 1, upto=newest)
            outcome = outcome_of(execution.run_id, execution.status, last[-1]) if last else None
        return execution_view(
            execution,
            self._owner(shard_id),
            inputs=started.input,
            outcome=outcome,
            memo=started.memo,
            search_attributes=started.search_attributes,
        )

    async def list_executions(
        self, which: ListFilter, cursor: str | None, limit: int
    ) -> Page[ExecutionSummary]:
        """Return runs, newest start first; the cursor is the place of the last line."""
        status = which.statuses[0] if len(which.statuses) == 1 else None
        wanted = ExecutionFilter(
            namespace=which.namespace,
            status=status,
            workflow_type=which.workflow_type,
            started_from_us=which.started_after_us,
            started_before_us=which.started_before_us,
        )
        items: list[ExecutionSummary] = []
        before = _parse_cursor(cursor)
        while len(items) < limit:
            rows = await self._node.store.list_executions(wanted, before=before, limit=limit)
            for row in rows:
                before = (row.started_us, row.run_id)
                if which.statuses and row.status not in which.statuses:
                    continue
                if which.workflow_id_prefix and not row.workflow_id.startswith(
                    which.workflow_id_prefix
                ):
                    continue
                items.append(_summary(row))
                if len(items) == limit:
                    break
            if len(rows) < limit:
                return Page(items=tuple(items), next_cursor=None)
        assert before is not None  # noqa: S101 - rows were read
        return Page(items=tuple(items), next_cursor=f"{before[0]}.{before[1]}")

    async def history(  # noqa: PLR0913 - see engine.api.backend
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
        """Return a page of stored events."""
        shard_id, execution = await self._find(namespace, workflow_id, run_id)
        store = self._node.store
        # A page ends by its bytes too, so only the ids tell whether there is more.
        newest = execution.next_event_id - 1
        lower = min(after or 0, newest)
        upper = newest if before is None else min(before - 1, newest)
        if newest_first:
            events = await store.events_newest_first(
                shard_id, execution.run_id, before=upper + 1, limit=limit
            )
            events = [event for event in events if event.event_id > lower]
            has_more = bool(events) and events[-1].event_id > lower + 1
        else:
            events = await store.events(
                shard_id, execution.run_id, after=lower, upto=upper, limit=limit
            )
            has_more = bool(events) and events[-1].event_id < upper
        return HistoryPageView(run_id=execution.run_id, events=tuple(events), has_more=has_more)

    async def proof(self, namespace: str, workflow_id: str, run_id: str | None) -> Certificate:
        """Judge what Postgres holds; in a thread, since a long history takes a while."""
        shard_id = self._node.shards.shard_of(namespace, workflow_id)
        chain = await self._node.store.proof_rows(shard_id, namespace, workflow_id, run_id)
        if chain is None:
            raise _not_found(workflow_id, run_id)
        return await asyncio.to_thread(certify, chain)

    def cluster(self) -> ClusterView:
        """Return the nodes as this one knows them."""
        node = self._node
        now_us = node.membership.now_us()
        owned: dict[str, int] = {}
        for entry in node.shards.map.values():
            owned[entry.incarnation] = owned.get(entry.incarnation, 0) + 1
        return ClusterView(
            mode=self._mode,
            broker=self._broker,
            shard_count=node.shards.shard_count,
            node_id=node.membership.node_id,
            version=odin.__version__,
            nodes=tuple(
                NodeView(
                    node_id=row.node_id,
                    incarnation=row.incarnation,
                    address=row.address,
                    state=row.state.value,
                    lease_age=max(0.0, 10.0 - (row.lease_until_us - now_us) / 1_000_000),
                    shard_count=owned.get(row.incarnation, 0),
                    is_self=row.incarnation == node.membership.incarnation,
                )
                for row in sorted(node.ownership.nodes.values(), key=lambda row: row.node_id)
                if row.state is not NodeState.DEAD
            ),
        )

    def shards(self) -> Sequence[ShardView]:
        """Return who owns what, as this node knows it."""
        nodes = self._node.ownership.nodes
        views: list[ShardView] = []
        for shard_id in range(self._node.shards.shard_count):
            entry = self._node.shards.entry(shard_id)
            owner = nodes.get(entry.incarnation)
            views.append(
                ShardView(
                    shard_id=shard_id,
                    range_id=entry.range_id,
                    incarnation=entry.incarnation,
                    node_id="" if owner is None else owner.node_id,
                    address="" if owner is None else owner.address,
                )
            )
        return views

    def workers(self) -> Sequence[WorkerView]:
        """Return the workers linked to this node."""
        warm: dict[str, int] = {}
        for term in self._node.shards.terms.values():
            for run in term.runs.values():
                warm[run.warm] = warm.get(run.warm, 0) + 1
        return [
            WorkerView(
                name=session.hello.name,
                incarnation=session.worker,
                namespace=session.hello.namespace,
                build_id=session.hello.build_id,
                task_queues=tuple(queue.task_queue for queue in session.hello.queues),
                workflow_types=session.hello.workflow_types,
                activity_types=session.hello.activity_types,
                workflow_slots=session.hello.workflow_slots,
                activity_slots=session.hello.activity_slots,
                warm_runs=warm.get(session.worker, 0),
            )
            for session in self._node.sessions
        ]

    def metrics(self) -> Iterable[MetricView]:
        """Return this node's samples."""
        return [
            MetricView(name=name, value=value, kind=kind, help=text)
            for name, kind, value, text in samples(self._node)
        ]

    def ready(self) -> ReadyView:
        """Return whether requests should be routed here.

        A database that takes no writes does not count: reads are served, and writes are refused
        with the cause, here as anywhere.
        """
        node = self._node
        lease = node.membership.may_serve()
        sees = bool(node.ownership.nodes)
        cause = node.store.condition.cause
        return ReadyView(
            ok=lease and sees,
            checks={
                "lease": CheckView(ok=lease, detail="" if lease else "the lease is in doubt"),
                "cluster": CheckView(ok=sees, detail="" if sees else "not seen yet"),
                "database": CheckView(ok=not cause, detail=cause),
            },
        )

    async def _find(
        self, namespace: str, workflow_id: str, run_id: str | None
    ) -> tuple[int, Execution]:
        shard_id = self._node.shards.shard_of(namespace, workflow_id)
        execution = await self._node.store.describe(shard_id, namespace, workflow_id, run_id)
        if execution is None:
            raise _not_found(workflow_id, run_id)
        return shard_id, execution

    def _owner(self, shard_id: int) -> OwnerView:
        entry = self._node.shards.entry(shard_id)
        owner = self._node.ownership.nodes.get(entry.incarnation)
        return OwnerView(
            shard_id=shard_id,
            range_id=entry.range_id,
            node_id="" if owner is None else owner.node_id,
            address="" if owner is None else owner.address,
        )


def _not_found(workflow_id: str, run_id: str | None) -> NotFoundError:
    which = workflow_id if run_id is None else f"{workflow_id} run {run_id}"
    return NotFoundError(f"there is no workflow execution {which}")


def _summary(row: SummaryRow) -> ExecutionSummary:
    return ExecutionSummary(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        workflow_type=row.workflow_type,
        task_queue=row.task_queue,
        status=row.status,
        started_at=instant(row.started_us),
        closed_at=None if row.closed_us is None else instant(row.closed_us),
        history_length=row.history_length,
        origin=row.origin,
        shard_id=row.shard_id,
    )


def _parse_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    started, _, run_id = cursor.partition(".")
    if not _STARTED.match(started) or run_id_of(run_id) != run_id:
        raise InvalidArgumentError("this cursor was not made by odin", reason="BAD_CURSOR")
    return int(started), run_id
