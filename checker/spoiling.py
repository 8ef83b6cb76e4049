"""How a copy of rows is spoiled: small changes of which mutations are made; pure.

Each returns new evidence, or None where there is nothing of the kind to spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from odin.proof.rows import EventRow, RunRows

if TYPE_CHECKING:
    from odin.proof.rows import EffectRow

    from .evidence import Evidence
    from .invariants.rows import Told

Spoil: TypeAlias = "Callable[[Evidence], Evidence | None]"
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

COMPLETED: Final = "activity_task_completed"
SCHEDULED: Final = "activity_task_scheduled"
HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to spoil rows, and which invariant must notice.

    Attributes:
        name: What is done, in words.
        invariant: Who must say no.
        spoil: Does it.
        verdict: What must come out: invalid, or unknown for evidence that is gone.
    """

    name: str
    invariant: str
    spoil: Spoil
    verdict: str = "invalid"


def changed(row: S, **values: object) -> S:
    """Return a copy of a row with other values."""
    return msgspec.structs.replace(row, **values)


def first(rows: Iterable[T], wanted: Callable[[T], bool] = lambda _: True) -> T | None:
    """Return the first row that is wanted."""
    return next((one for one in rows if wanted(one)), None)


def swapped(rows: Sequence[T], old: T, *new: T) -> tuple[T, ...]:
    """Return the rows with others in the place of one; it is found by identity."""
    return tuple(made for one in rows for made in (new if one is old else (one,)))


def closed_with(*types: str) -> Callable[[RunRows], bool]:
    """Return whether a run is closed and has an event of each type."""

    def is_wanted(rows: RunRows) -> bool:
        has = {event.type for event in rows.events}
        is_closed = rows.execution is not None and rows.execution.status == "completed"
        return is_closed and has.issuperset(types)

    return is_wanted


def in_run(wanted: Callable[[RunRows], bool], change: Callable[[RunRows], RunRows | None]) -> Spoil:
    """Return the mutation that changes the first run that is wanted."""

    def spoil(evidence: Evidence) -> Evidence | None:
        rows = first(evidence.runs, wanted)
        made = None if rows is None else change(rows)
        if rows is None or made is None:
            return None
        return replace(evidence, runs=swapped(evidence.runs, rows, made))

    return spoil


def in_event(
    event_type: str, change: Callable[[EventRow], Sequence[EventRow]], *, of: str = ""
) -> Spoil:
    """Return the mutation that puts others in the place of the first event of a type.

    Args:
        event_type: Of the event.
        change: What stands in its place.
        of: Only an event about this activity type.
    """

    def is_meant(event: EventRow) -> bool:
        return event.type == event_type and of in {"", event.attributes.get("activity_type")}

    def spoil(rows: RunRows) -> RunRows | None:
        event = first(rows.events, is_meant)
        if event is None:
            return None
        return changed(rows, events=swapped(rows.events, event, *change(event)))

    return in_run(lambda rows: any(is_meant(event) for event in rows.events), spoil)


def told_otherwise(event: EventRow, **attributes: Any) -> EventRow:  # noqa: ANN401 - of any event
    """Return an event with other attributes."""
    return changed(event, attributes={**event.attributes, **attributes})


def in_effect(kind: str, change: Callable[[EffectRow], Sequence[EffectRow]]) -> Spoil:
    """Return the mutation that puts others in the place of the first effect of a kind."""

    def of_kind(rows: RunRows) -> EffectRow | None:
        own = f"/{rows.run_id}/"
        return first(
            rows.effects or (), lambda one: one.kind == kind and own in one.idempotency_key
        )

    def spoil(rows: RunRows) -> RunRows | None:
        effect = of_kind(rows)
        if effect is None:
            return None
        return changed(rows, effects=swapped(rows.effects or (), effect, *change(effect)))

    return in_run(lambda rows: closed_with()(rows) and of_kind(rows) is not None, spoil)


def in_told(wanted: Callable[[Told], bool], change: Callable[[Told], Told | None]) -> Spoil:
    """Return the mutation that changes what is known of the first workflow id that is wanted."""

    def spoil(evidence: Evidence) -> Evidence | None:
        told = first(evidence.told, wanted)
        made = None if told is None else change(told)
        if told is None or made is None:
            return None
        return replace(evidence, told=swapped(evidence.told, told, made))

    return spoil


def in_open_run(change: Callable[[RunRows], RunRows | None]) -> Spoil:
    """Return the mutation that changes the first open run that waits for a timer."""

    def is_open(rows: RunRows) -> bool:
        run = rows.execution
        return run is not None and run.status == "running" and run.due_at_us is not None

    return in_run(is_open, change)


def with_row(rows: RunRows, **values: object) -> RunRows:
    """Return a run whose row in `execution` has other values."""
    if rows.execution is None:
        return rows
    return changed(rows, execution=changed(rows.execution, **values))
