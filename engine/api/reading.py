"""Handlers that read: executions, histories, and the cluster as this node sees it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from odin.core.execution import STATUSES
from odin.core.ids import check_id
from odin.errors import InvalidArgumentError

from .backend import Backend, ListFilter
from .call import Answer, Call, integer, json_answer, msgpack_answer
from .history_json import event_view
from .metrics_text import render
from .views import ExecutionSummary, HistoryView, Page, ShardView, WorkerView

if TYPE_CHECKING:
    from collections.abc import Mapping

LIST_LIMIT: Final = 50
LIST_LIMIT_MAX: Final = 500
HISTORY_LIMIT: Final = 200
HISTORY_LIMIT_MAX: Final = 1_000
EVENT_ID_MAX: Final = 2**53
FAILED_STATUSES: Final[tuple[str, ...]] = ("failed", "terminated", "timed_out")
_CURSOR_CHARS_MAX: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Reading:
    """The handlers, over one backend."""

    def __init__(self, backend: Backend, counts: Mapping[tuple[str, int], int]) -> None:
        """Take the engine and the API's own counts of (route, status)."""
        self._backend = backend
        self._counts = counts

    async def list_executions(self, call: Call) -> Answer:
        """Return runs, newest first."""
        query = call.query
        limit = integer(query.get("limit", str(LIST_LIMIT)), "limit", 1, LIST_LIMIT_MAX)
        cursor = query.get("cursor")
        if cursor is not None and not (
            0 < len(cursor) <= _CURSOR_CHARS_MAX and cursor.isprintable()
        ):
            raise InvalidArgumentError(
                "cursor is not one that this API has made", reason="BAD_CURSOR"
            )
        page: Page[ExecutionSummary] = await self._backend.list_executions(
            _filter(call), cursor, limit
        )
        return json_answer(page)

    async def describe(self, call: Call) -> Answer:
        """Return one run with what is pending in it."""
        target = call.target
        return json_answer(
            await self._backend.describe(target.namespace, target.workflow_id, target.run_id)
        )

    async def history(self, call: Call) -> Answer:
        """Return a page of a history: as JSON, or exactly as stored where msgpack is accepted."""
        target = call.target
        query = call.query
        newest_first = _choice(query.get("order", "asc"), "order", ("asc", "desc")) == "desc"
        page = await self._backend.history(
            target.namespace,
            target.workflow_id,
            target.run_id,
            after=_event_id(query, "after"),
            before=_event_id(query, "before"),
            limit=integer(query.get("limit", str(HISTORY_LIMIT)), "limit", 1, HISTORY_LIMIT_MAX),
            newest_first=newest_first,
        )
        following = page.events[-1].event_id if page.has_more and page.events else None
        if call.takes_msgpack:
            return msgpack_answer((page.run_id, page.events, following))
        events = tuple(event_view(one) for one in page.events)
        return json_answer(HistoryView(run_id=page.run_id, events=events, next=following))

    async def proof(self, call: Call) -> Answer:
        """Return the certificate of a chain of runs, or of one run."""
        target = call.target
        return json_answer(
            await self._backend.proof(target.namespace, target.workflow_id, target.run_id)
        )

    async def cluster(self, _: Call) -> Answer:
        """Return nodes and modes."""
        return json_answer(self._backend.cluster())

    async def shards(self, _: Call) -> Answer:
        """Return the owner of every shard."""
        return json_answer(Page[ShardView](items=tuple(self._backend.shards())))

    async def workers(self, _: Call) -> Answer:
        """Return the workers linked to this node."""
        return json_answer(Page[WorkerView](items=tuple(self._backend.workers())))

    async def health(self, _: Call) -> Answer:
        """Return that the process lives; touches nothing."""
        return Answer(b'{"ok":true}')

    async def ready(self, _: Call) -> Answer:
        """Return whether requests should be routed here."""
        view = self._backend.ready()
        if view.ok:
            return json_answer(view)
        wait = str(max(1, math.ceil(view.retry_after))).encode()
        return json_answer(view, 503, ((b"retry-after", wait),))

    async def metrics(self, _: Call) -> Answer:
        """Return all samples in the text format of Prometheus."""
        body = render(self._backend.metrics(), self._counts)
        return Answer(body, content_type=b"text/plain; version=0.0.4; charset=utf-8")


def _filter(call: Call) -> ListFilter:
    query = call.query
    prefix = query.get("workflow_id")
    workflow_type = query.get("workflow_type")
    return ListFilter(
        namespace=call.namespace,
        statuses=_statuses(query),
        workflow_type=check_id(workflow_type, "workflow_type") if workflow_type else None,
        workflow_id_prefix=check_id(prefix, "workflow_id") if prefix else None,
        started_after_us=_instant(query, "started_after"),
        started_before_us=_instant(query, "started_before"),
    )


def _statuses(query: Mapping[str, str]) -> tuple[str, ...]:
    status = query.get("status")
    wanted = () if status is None else tuple(status.split(","))
    for one in wanted:
        _choice(one, "status", STATUSES)
    if "failed" not in query:
        return wanted
    if _choice(query["failed"], "failed", ("true", "false")) == "true":
        group: tuple[str, ...] = FAILED_STATUSES
    else:
        group = tuple(one for one in STATUSES if one not in FAILED_STATUSES)
    if not wanted:
        return group
    both = tuple(one for one in wanted if one in group)
    if not both:
        raise InvalidArgumentError("no run can have that status and that value of failed at once")
    return both


def _choice(given: str, what: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise InvalidArgumentError(
            f"{what} {given[:40]!r} is none of {', '.join(allowed)}", details={"field": what}
        )
    return given


def _event_id(query: Mapping[str, str], what: str) -> int | None:
    given = query.get(what)
    return None if given is None else integer(given, what, 0, EVENT_ID_MAX)


def _instant(query: Mapping[str, str], what: str) -> int | None:
    given = query.get(what)
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
        span = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        span = timedelta(-1)
    if span < timedelta(0):
        raise InvalidArgumentError(
            f"{what} {given[:40]!r} is not an instant like 2026-05-01T12:00:00Z",
            details={"field": what},
        )
    return span // timedelta(microseconds=1)
