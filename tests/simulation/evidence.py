"""What the auditor judges: the database's tables as plain rows, and what clients and services saw.

This is the only place that knows how the model of the database keeps its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odin.core.events import Event, HistoryEvent, from_history
from odin.core.payload import Payload, decode

if TYPE_CHECKING:
    from odin.core.requests import ClientRequest
    from tests.simulation.world import World

GENTLE: Final = {"short_cuts", "slow_services"}
"""Faults that no attempt is lost to."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of `event`; `event` is decoded, `txid` grows with the order of commits.

    `committed_us` is the latest that the database's clock had shown by then.
    """

    shard_id: int
    run_id: str
    event_id: int
    type: str
    committed_us: int
    range_id: int
    txid: int
    event: Any


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `execution`, as far as it is judged."""

    shard_id: int
    workflow_id: str
    run_id: str
    first_run_id: str
    status: str
    next_event_id: int


@dataclass(frozen=True, slots=True)
class TermRow:
    """A row of `shard_term`."""

    shard_id: int
    range_id: int
    happening: str
    incarnation: str
    txid: int


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call as its client saw it: acknowledged with an answer, refused, or neither."""

    request: ClientRequest
    answer: Any
    refusal: str
    asked_at: float
    answered_at: float


@dataclass(slots=True)
class Evidence:
    """Everything."""

    runs: list[RunRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    terms: list[TermRow] = field(default_factory=list)
    outbox_count: int = 0
    calls: list[CallRow] = field(default_factory=list)
    effects: dict[str, str] = field(default_factory=dict)
    begun: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    returned: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, list[Any]] = field(default_factory=dict)
    is_finished: bool = False
    is_gentle: bool = False


def gather(world: World, faults: Sequence[str]) -> Evidence:
    """Return what is left of a world in which there were these faults."""
    tables = world.database.tables
    return Evidence(
        runs=[
            RunRow(
                run.shard_id, run.workflow_id, run.run_id, run.first_run_id, run.status,
                run.next_event_id,
            )
            for run in tables.execution.values()
        ],
        events=[
            EventRow(
                row.shard_id, row.run_id, row.event_id, row.type,
                world.committed_us[row.txid], row.range_id,
                row.txid, _event_of(row.event_id, row.type, row.recorded_us, row.attributes),
            )
            for row in tables.events
        ],
        terms=[
            TermRow(term.shard_id, term.range_id, term.happening, term.incarnation, term.txid)
            for term in tables.shard_term.values()
        ],
        outbox_count=len(tables.outbox),
        is_gentle=all(fault.split()[0] in GENTLE for fault in faults),
        **_seen_by_clients(world),
    )  # fmt: skip


def _event_of(event_id: int, kind: str, recorded_us: int, attributes: bytes) -> Event:
    return from_history(HistoryEvent(event_id, kind, recorded_us, attributes))


def _seen_by_clients(world: World) -> dict[str, Any]:
    orders = world.workload.orders
    return {
        "calls": [
            CallRow(
                call.request, call.answer, "" if call.error is None else call.error.reason,
                call.asked_at, call.answered_at,
            )
            for call in world.workload.calls
        ],
        "effects": {key: effect.label for key, effect in world.ledger.effects.items()},
        "begun": dict(world.ledger.begun),
        "returned": dict(world.ledger.returned),
        "results": {
            order.name: (order.outcome.status, _value(order.outcome.result))
            for order in orders
            if order.outcome is not None
        },
        "expected": {order.name: order.expected() for order in orders},
        "is_finished": all(order.outcome is not None for order in orders),
    }  # fmt: skip


def _value(result: Payload | None) -> Any:  # noqa: ANN401 - whatever the workflow returned
    return None if result is None else decode(result)
