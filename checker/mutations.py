"""The mutations of the self-test that spoil a run; the others are in `set_mutations`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .spoiling import (
    COMPLETED,
    HOUR_US,
    SCHEDULED,
    Mutation,
    changed,
    closed_with,
    first,
    in_effect,
    in_event,
    in_open_run,
    in_run,
    swapped,
    told_otherwise,
    with_row,
)

if TYPE_CHECKING:
    from odin.proof.rows import EffectRow, EventRow, RunRows

    from .evidence import Evidence

STARTED: Final = "workflow_execution_started"
CONTINUED: Final = "workflow_execution_continued_as_new"


def _with_event_after_the_end(rows: RunRows) -> RunRows:
    last = rows.events[-1]
    return changed(
        with_row(rows, next_event_id=last.event_id + 2),
        events=(*rows.events, changed(last, event_id=last.event_id + 1, type=COMPLETED)),
    )


def _written_after_its_term(rows: RunRows) -> RunRows | None:
    """Let a newer term of the shard begin before the last event was committed."""
    last = rows.events[-1]
    begun = first(
        rows.terms or (),
        lambda one: one.range_id == last.range_id and one.what in {"acquired", "bumped"},
    )
    if begun is None or last.commit_at_us is None:
        return None
    later = changed(begun, range_id=begun.range_id + 1, commit_at_us=last.commit_at_us - 1)
    kept = (one for one in rows.terms or () if one.range_id <= last.range_id)
    return changed(rows, terms=(*kept, later))


def _resolved_twice(rows: RunRows) -> RunRows | None:
    done = first(rows.events, lambda one: one.type == COMPLETED)
    if done is None:
        return None
    return changed(rows, events=(*rows.events[:-1], done, rows.events[-1]))


def _row_that_forgot(rows: RunRows) -> RunRows | None:
    run = rows.execution
    if run is None or not run.pending:
        return None
    return with_row(rows, pending=[run.pending[0], {}, {}, *run.pending[3:]])


def _steps_swapped(rows: RunRows) -> RunRows | None:
    """Let the charge come before the reservation."""
    effects = {one.kind: one for one in rows.effects or ()}
    if not {"reserve", "charge"} <= effects.keys():
        return None
    reserve, charge = effects["reserve"], effects["charge"]
    made = {reserve.seq: charge.seq, charge.seq: reserve.seq}
    return changed(
        rows,
        effects=tuple(changed(one, seq=made.get(one.seq, one.seq)) for one in rows.effects or ()),
    )


def _nothing_undone(rows: RunRows) -> RunRows | None:
    kept = tuple(one for one in rows.effects or () if one.kind != "unreserve")
    return None if len(kept) == len(rows.effects or ()) else changed(rows, effects=kept)


def _claimed_twice(event: EventRow) -> list[EventRow]:
    attempts = list(event.attributes.get("attempts", ()))
    return [told_otherwise(event, attempts=[*attempts, *attempts])]


def _early(event: EventRow) -> list[EventRow]:
    at_us = event.recorded_at_us - HOUR_US
    return [changed(event, recorded_at_us=at_us, commit_at_us=at_us)]


def _again(effect: EffectRow) -> list[EffectRow]:
    return [effect, changed(effect, seq=effect.seq + 1_000_000)]


def _other_amount(effect: EffectRow) -> list[EffectRow]:
    return [changed(effect, amount_cents=effect.amount_cents + 1)]


def _unasked(effect: EffectRow) -> list[EffectRow]:
    key = effect.idempotency_key.rpartition("/")[0] + "/nobody"
    return [effect, changed(effect, seq=effect.seq + 1_000_000, idempotency_key=key)]


def _without_a_successor(evidence: Evidence) -> Evidence | None:
    ended = first(evidence.runs, lambda one: bool(one.events) and one.events[-1].type == CONTINUED)
    if ended is None:
        return None
    named = ended.events[-1].attributes.get("new_run_id")
    return replace(evidence, runs=tuple(one for one in evidence.runs if one.run_id != named))


def _another_transaction(evidence: Evidence) -> Evidence | None:
    run = first(
        evidence.runs,
        lambda one: bool(one.events and one.events[0].attributes.get("continued_from_run_id")),
    )
    if run is None:
        return None
    begun = changed(run.events[0], txid=run.events[0].txid + 1_000)
    made = changed(run, events=(begun, *run.events[1:]))
    return replace(evidence, runs=swapped(evidence.runs, run, made))


_ORDER: Final = closed_with(SCHEDULED, COMPLETED)

RUN_MUTATIONS: Final = (
    Mutation("drop an event", "I1", in_event(SCHEDULED, lambda _: [])),
    Mutation(
        "swap the order of two events",
        "I1",
        in_run(_ORDER, lambda one: changed(one, events=(*one.events[1::-1], *one.events[2:]))),
    ),
    Mutation(
        "a row that expects another event",
        "I1",
        in_run(_ORDER, lambda one: with_row(one, next_event_id=len(one.events))),
    ),
    Mutation("an event after the end", "I2", in_run(_ORDER, _with_event_after_the_end)),
    Mutation("drop the start", "I2", in_event(STARTED, lambda _: [])),
    Mutation(
        "an event under a range that nobody had",
        "I3",
        in_event(COMPLETED, lambda one: [changed(one, range_id=one.range_id + 1_000)]),
    ),
    Mutation("an event written after its term", "I3", in_run(_ORDER, _written_after_its_term)),
    Mutation("an activity that ends twice", "I5", in_run(_ORDER, _resolved_twice)),
    Mutation(
        "an end of something that nobody asked for",
        "I5",
        in_event(COMPLETED, lambda one: [told_otherwise(one, command_id=9_999)]),
    ),
    Mutation("an open run whose row forgot its timer", "I6", in_open_run(_row_that_forgot)),
    Mutation(
        "a closed run that is still due",
        "I6",
        in_run(_ORDER, lambda one: with_row(one, due_at_us=1)),
    ),
    Mutation("a charge twice under one key", "I10", in_effect("charge", _again)),
    Mutation("a charge of another amount", "I10", in_effect("charge", _other_amount)),
    Mutation("a charge that no history asked for", "I11", in_effect("charge", _unasked)),
    Mutation("drop a charge from the ledger", "I11", in_effect("charge", lambda _: [])),
    Mutation("charged before reserved", "I12", in_run(_ORDER, _steps_swapped)),
    Mutation(
        "an order given up and not undone",
        "I12",
        in_run(
            lambda one: closed_with()(one) and _nothing_undone(one) is not None, _nothing_undone
        ),
    ),
    Mutation("drop a charge", "I13", in_effect("charge", lambda _: [])),
    Mutation("an attempt claimed twice", "I15", in_event(COMPLETED, _claimed_twice)),
    Mutation("a timer that fires early", "I16", in_event("timer_fired", _early)),
    Mutation("drop the successor of a run", "I19", _without_a_successor),
    Mutation("a successor of another transaction", "I19", _another_transaction),
)
