"""Every route of the API, once: what serves it, and what the OpenAPI document says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.core.execution import STATUSES
from odin.core.requests import Accepted, Started
from odin.proof import Certificate

from .bodies import ID_SCHEMA, ReasonBody, SignalBody, StartBody
from .call import Handler
from .reading import HISTORY_LIMIT, HISTORY_LIMIT_MAX, LIST_LIMIT, LIST_LIMIT_MAX
from .views import (
    ClusterView,
    ExecutionSummary,
    ExecutionView,
    HistoryView,
    OutcomeView,
    Page,
    ReadyView,
    ShardView,
    WorkerView,
)
from .writing import WAIT_SECONDS_MAX

if TYPE_CHECKING:
    from .reading import Reading
    from .writing import Writing


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter."""

    name: str
    schema: dict[str, Any]
    description: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route. `answers` maps a status to the type of its body; `refusals` are problem+json."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    query: tuple[Parameter, ...] = ()
    body: Any = None
    answers: dict[int, Any]
    refusals: tuple[int, ...] = (400, 401, 500, 503)
    is_open: bool = False


_ONE: Final = "/v1/executions/{workflow_id}"
_TEXT: Final = {"type": "string"}
_ID: Final = {**_TEXT, **ID_SCHEMA}
_NAMESPACE: Final = Parameter("namespace", {**_ID, "default": "default"}, "The namespace.")
_RUN_ID: Final = Parameter("run_id", {**_TEXT, "format": "uuid"}, "One run; else the newest.")
_TARGET: Final = (_NAMESPACE, _RUN_ID)
_WRITE_REFUSALS: Final = (400, 401, 403, 404, 409, 422, 429, 500, 503, 504)
_READ_REFUSALS: Final = (400, 401, 404, 500, 503)


def _whole(low: int, high: int, default: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    return schema if default is None else {**schema, "default": default}


_LIST: Final = (
    _NAMESPACE,
    Parameter("status", _TEXT, f"One or several of {', '.join(STATUSES)}, with commas."),
    Parameter("failed", {"type": "boolean"}, "Failed, terminated or timed out; or none of these."),
    Parameter("workflow_type", _ID, "The workflow type."),
    Parameter("workflow_id", _ID, "How the workflow id begins."),
    Parameter(
        "started_after", {**_TEXT, "format": "date-time"}, "Started at this instant or later."
    ),
    Parameter("started_before", {**_TEXT, "format": "date-time"}, "Started earlier."),
    Parameter("limit", _whole(1, LIST_LIMIT_MAX, LIST_LIMIT), "At most this many."),
    Parameter("cursor", _TEXT, "`next_cursor` of the page before."),
)
_HISTORY: Final = (
    *_TARGET,
    Parameter("after", _whole(0, 2**53), "Only events with a higher id."),
    Parameter("before", _whole(0, 2**53), "Only events with a lower id."),
    Parameter("order", {"enum": ["asc", "desc"], "default": "asc"}, "Oldest or newest first."),
    Parameter("limit", _whole(1, HISTORY_LIMIT_MAX, HISTORY_LIMIT), "At most this many."),
)
_WAIT: Final = (
    *_TARGET,
    Parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "default": WAIT_SECONDS_MAX},
        "Seconds after which the answer is that the run still runs.",
    ),
)


def routes(writing: Writing, reading: Reading) -> tuple[Route, ...]:
    """Return all routes, the busiest first: matching goes in this order."""
    return (*_writing_routes(writing), *_reading_routes(reading))


def _writing_routes(writing: Writing) -> tuple[Route, ...]:
    return (
        Route(
            method="POST",
            path="/v1/executions",
            name="start",
            summary="Start a workflow execution, or signal it and start it if none is open",
            handler=writing.start,
            query=(_NAMESPACE,),
            body=StartBody,
            answers={201: Started, 200: Started},
            refusals=_WRITE_REFUSALS,
        ),
        Route(
            method="GET",
            path=f"{_ONE}/wait",
            name="wait",
            summary="Wait for the outcome; without run_id the chain of runs is followed",
            handler=writing.wait,
            query=_WAIT,
            answers={200: OutcomeView},
            refusals=_READ_REFUSALS,
        ),
        Route(
            method="POST",
            path=f"{_ONE}/signals/{{name}}",
            name="signal",
            summary="Signal the open run",
            handler=writing.signal,
            query=_TARGET,
            body=SignalBody,
            answers={200: Accepted},
            refusals=_WRITE_REFUSALS,
        ),
        Route(
            method="POST",
            path=f"{_ONE}/cancel",
            name="cancel",
            summary="Ask the open run to stop; its code decides how",
            handler=writing.cancel,
            query=_TARGET,
            body=ReasonBody,
            answers={200: Accepted},
            refusals=_WRITE_REFUSALS,
        ),
        Route(
            method="POST",
            path=f"{_ONE}/terminate",
            name="terminate",
            summary="End the open run at once; none of its code runs",
            handler=writing.terminate,
            query=_TARGET,
            body=ReasonBody,
            answers={200: Accepted},
            refusals=_WRITE_REFUSALS,
        ),
    )


def _reading_routes(reading: Reading) -> tuple[Route, ...]:
    return (
        Route(
            method="GET",
            path=_ONE,
            name="describe",
            summary="One run with what is pending in it",
            handler=reading.describe,
            query=_TARGET,
            answers={200: ExecutionView},
            refusals=_READ_REFUSALS,
        ),
        Route(
            method="GET",
            path=f"{_ONE}/history",
            name="history",
            summary="The event history, page by page",
            handler=reading.history,
            query=_HISTORY,
            answers={200: HistoryView},
            refusals=_READ_REFUSALS,
        ),
        Route(
            method="GET",
            path=f"{_ONE}/proof",
            name="proof",
            summary="What its rows prove: the answer of each invariant; of all runs of the chain",
            handler=reading.proof,
            query=_TARGET,
            answers={200: Certificate},
            refusals=_READ_REFUSALS,
        ),
        Route(
            method="GET",
            path="/v1/executions",
            name="list",
            summary="Runs, newest first",
            handler=reading.list_executions,
            query=_LIST,
            answers={200: Page[ExecutionSummary]},
        ),
        *_node_routes(reading),
    )


def _node_routes(reading: Reading) -> tuple[Route, ...]:
    plain: tuple[tuple[str, str, Handler, Any], ...] = (
        ("cluster", "Nodes and modes", reading.cluster, ClusterView),
        ("shards", "Who owns which shard", reading.shards, Page[ShardView]),
        ("workers", "The workers linked to this node", reading.workers, Page[WorkerView]),
        ("metrics", "Metrics in the text format of Prometheus", reading.metrics, str),
    )
    return (
        *(
            Route(
                method="GET",
                path=f"/v1/{name}",
                name=name,
                summary=summary,
                handler=handler,
                answers={200: answer},
                refusals=(400, 401, 500),
            )
            for name, summary, handler, answer in plain
        ),
        Route(
            method="GET",
            path="/v1/health",
            name="health",
            summary="Whether the process lives",
            handler=reading.health,
            answers={200: dict[str, bool]},
            refusals=(),
            is_open=True,
        ),
        Route(
            method="GET",
            path="/v1/ready",
            name="ready",
            summary="Whether requests should be routed here",
            handler=reading.ready,
            answers={200: ReadyView, 503: ReadyView},
            refusals=(),
            is_open=True,
        ),
    )
