"""The mutations of the self-test that spoil what lies beside the runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .invariants.rows import OrphanRow, OutboxState, RunRef, SessionRow, TableRow
from .spoiling import (
    HOUR_US,
    Mutation,
    Spoil,
    changed,
    first,
    in_open_run,
    in_told,
    swapped,
    with_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from odin.proof.rows import RunRows, TermRow

    from .evidence import Evidence
    from .invariants.rows import CallRow, Told


def _in_terms(change: Callable[[TermRow], list[TermRow]], what: str = "acquired") -> Spoil:
    """Change the newest happening of a kind: what came before it is of no use without it."""

    def spoil(evidence: Evidence) -> Evidence | None:
        term = first(
            sorted(evidence.terms, key=lambda one: -one.range_id), lambda one: one.what == what
        )
        if term is None:
            return None
        return replace(evidence, terms=swapped(evidence.terms, term, *change(term)))

    return spoil


def _overlapping(evidence: Evidence) -> Evidence | None:
    """Let a term begin an hour before the one before it ended."""
    term = first(evidence.terms, lambda one: one.what == "acquired" and one.range_id > 1)
    if term is None:
        return None
    made = changed(term, at_us=term.at_us - HOUR_US)
    return replace(evidence, terms=swapped(evidence.terms, term, made))


def _other_owner(term: TermRow) -> list[TermRow]:
    return [term, changed(term, what="expired", incarnation="somebody-else")]


def _has_start(outcome: str) -> Callable[[Told], bool]:
    return lambda told: any(one.kind == "start" and one.outcome == outcome for one in told.calls)


def _started(told: Told, **values: object) -> Told | None:
    call = first(told.calls, lambda one: one.kind == "start")
    if call is None:
        return None
    return changed(told, calls=swapped(told.calls, call, changed(call, **values)))


def _without_requests(told: Told) -> Told:
    return changed(told, requests=())


def _second_run(told: Told) -> Told:
    other = RunRef(run_id="other", first_run_id="other", status="completed", has_parent=False)
    return changed(told, runs=(*told.runs, other))


def _lines_missing(evidence: Evidence) -> Evidence | None:
    client = first(evidence.clients)
    if client is None:
        return None
    made = changed(client, line_count=client.line_count - 1)
    return replace(evidence, clients=swapped(evidence.clients, client, made))


def _has_recorded(told: Told) -> bool:
    return bool(told.signals)


def _has_signals(count: int) -> Callable[[Told], bool]:
    return lambda told: len(told.signals) >= count and any(_sent(told))


def _sent(told: Told) -> list[CallRow]:
    return [one for one in told.calls if one.kind == "signal" and one.outcome == "ok"]


def _reported(told: Told) -> bool:
    return any(one.state == "reported" for one in told.deliveries)


def _lost_report(told: Told) -> Told:
    return changed(told, requests=_starts(told), signals=())


def _starts(told: Told) -> tuple[Any, ...]:
    return tuple(one for one in told.requests if one.kind == "start")


def _signal_refused(told: Told) -> Told | None:
    call = first(_sent(told))
    if call is None:
        return None
    return changed(told, calls=swapped(told.calls, call, changed(call, outcome="fail")))


def _seen(*statuses: str) -> Callable[[Told], Told | None]:
    """Let one client see the same run in several states, one after another."""

    def change(told: Told) -> Told | None:
        call = first(told.calls, lambda one: one.kind == "describe")
        if call is None:
            return None
        made = [
            changed(call, call_id=f"seen-{number}", ended=number, details={"status": status})
            for number, status in enumerate(statuses, 1)
        ]
        return changed(told, calls=tuple(made))

    return change


def _with_untaken_task(rows: RunRows) -> RunRows:
    task = ["scheduled", 1, 1, 2**50, 10_000, False, 0]
    return with_row(rows, pending=[task, {}, {}, []], last_event_at_us=1)


def _with_untaken_activity(rows: RunRows) -> RunRows:
    activity = [*([0] * 11), "scheduled", 0, 2**50, 10_000, 1]
    pending = [["none", 1, 1, 0], {1: activity}, {}, []]
    return with_row(rows, pending=pending, last_event_at_us=1, started_at_us=1)


def _outbox_row(evidence: Evidence, status: str) -> Evidence:
    long_ago = evidence.moment.now_us - HOUR_US
    row = OutboxState(
        shard_id=0,
        id=1,
        run_id="run",
        created_at_us=long_ago,
        publish_count=3,
        status=status,
        closed_at_us=None if status == "running" else long_ago,
    )
    return replace(evidence, outbox=(row,))


def _stock(**change: int) -> Spoil:
    def spoil(evidence: Evidence) -> Evidence | None:
        row = first(evidence.stock)
        if row is None:
            return None
        values = {name: getattr(row, name) + by for name, by in change.items()}
        return replace(evidence, stock=swapped(evidence.stock, row, changed(row, **values)))

    return spoil


def _other_outcome(evidence: Evidence) -> Evidence | None:
    run_id = first(evidence.later)
    return None if run_id is None else replace(evidence, later={**evidence.later, run_id: "other"})


def _session(idle: float, waits: float) -> Spoil:
    row = SessionRow(
        pid=1, application_name="odin-x", idle_in_transaction_seconds=idle, lock_wait_seconds=waits
    )
    return lambda evidence: replace(evidence, sessions=(row,))


def _experiment(**values: object) -> Spoil:
    def spoil(evidence: Evidence) -> Evidence | None:
        if evidence.experiment is None:
            return None
        return replace(evidence, experiment=changed(evidence.experiment, **values))

    return spoil


_DEAD: Final = TableRow(name="outbox", live_tuples=10, dead_tuples=1_000_000)
_ORPHAN: Final = OrphanRow(seq=1, kind="charge", order_id="o", idempotency_key="no-run/no/1")
_UNBITTEN: Final = {"faults": [{"fault": "a kill", "bit": False}]}

SET_MUTATIONS: Final = (
    Mutation("a range that is skipped", "I4", _in_terms(lambda one: [changed(one, range_id=99)])),
    Mutation("drop the beginning of a term", "I4", _in_terms(lambda _: [])),
    Mutation("a term that another owner ends", "I4", _in_terms(_other_owner)),
    Mutation("two terms that overlap", "I4", _overlapping),
    Mutation("a start without a trace", "I7", in_told(_has_start("ok"), _without_requests)),
    Mutation(
        "an accepted run is gone",
        "I7",
        in_told(_has_start("ok"), lambda one: changed(one, runs=())),
    ),
    Mutation("a start that ran twice", "I7", in_told(_has_start("ok"), _second_run)),
    Mutation(
        "a refused start that ran",
        "I7",
        in_told(_has_start("ok"), lambda one: _started(one, outcome="fail")),
    ),
    Mutation(
        "a start that led to another run",
        "I7",
        in_told(_has_start("ok"), lambda one: _started(one, run_id="other")),
    ),
    Mutation("a client's log with a hole", "I7", _lines_missing, verdict="unknown"),
    Mutation(
        "no client's log at all",
        "I7",
        lambda one: replace(one, told=tuple(changed(told, calls=()) for told in one.told)),
        verdict="unknown",
    ),
    Mutation(
        "drop a signal from a history",
        "I8",
        in_told(_has_recorded, lambda one: changed(one, signals=one.signals[1:])),
    ),
    Mutation(
        "a signal recorded twice",
        "I8",
        in_told(_has_recorded, lambda one: changed(one, signals=(one.signals[0], *one.signals))),
    ),
    Mutation(
        "swap the order of two signals",
        "I8",
        in_told(_has_signals(2), lambda one: changed(one, signals=one.signals[::-1])),
    ),
    Mutation(
        "a signal whose acceptance was not kept",
        "I8",
        in_told(_has_recorded, lambda one: changed(one, requests=_starts(one))),
    ),
    Mutation("lose a delivery that was reported", "I8", in_told(_reported, _lost_report)),
    Mutation("a refused signal in a history", "I8", in_told(_has_signals(1), _signal_refused)),
    Mutation(
        "a run that is long overdue",
        "I9",
        in_open_run(lambda one: with_row(one, due_at_us=1, last_event_at_us=1)),
    ),
    Mutation(
        "work that nothing brings back",
        "I9",
        in_open_run(lambda one: with_row(one, due_at_us=None, last_event_at_us=1)),
    ),
    Mutation("a workflow task that no worker takes", "I9", in_open_run(_with_untaken_task)),
    Mutation("an activity that no worker takes", "I9", in_open_run(_with_untaken_activity)),
    Mutation(
        "an effect of a run that never was", "I11", lambda one: replace(one, orphans=(_ORPHAN,))
    ),
    Mutation("stock that vanished", "I13", _stock(available=-1)),
    Mutation("goods that nobody holds", "I13", _stock(available=-1, reserved=1)),
    Mutation(
        "a missing outbox row and no due instant",
        "I14",
        in_open_run(lambda one: with_row(one, due_at_us=None, has_task=True)),
    ),
    Mutation(
        "a missing outbox row of a late task",
        "I14",
        in_open_run(lambda one: with_row(one, due_at_us=1, has_task=True)),
    ),
    Mutation(
        "a due instant behind what is due",
        "I14",
        in_open_run(lambda one: with_row(one, due_at_us=2**55)),
    ),
    Mutation("an outbox row that nobody publishes", "I14", lambda one: _outbox_row(one, "running")),
    Mutation("an outbox row of a closed run", "I14", lambda one: _outbox_row(one, "completed")),
    Mutation(
        "an outbox that was not read",
        "I14",
        in_open_run(lambda one: changed(one, outbox=None)),
        verdict="unknown",
    ),
    Mutation(
        "a row that cannot be read",
        "I14",
        in_open_run(lambda one: with_row(one, pending=None)),
        verdict="unknown",
    ),
    Mutation(
        "ledgers that were not read",
        "I13",
        lambda one: replace(one, runs=tuple(changed(run, effects=None) for run in one.runs)),
        verdict="unknown",
    ),
    Mutation("an outcome that changed", "I20", _other_outcome),
    Mutation(
        "a status that went back",
        "I21",
        in_told(lambda one: _seen()(one) is not None, _seen("completed", "running")),
    ),
    Mutation(
        "an end that was seen and is none",
        "I21",
        in_told(lambda one: _seen()(one) is not None, _seen("terminated")),
    ),
    Mutation(
        "a refusal without retry_after",
        "I22",
        in_told(
            _has_start("fail"),
            lambda one: _started(one, details={"reason": "RESOURCE_EXHAUSTED"}),
        ),
    ),
    Mutation("a session idle in a transaction", "I23", _session(6.0, 0.0)),
    Mutation("a session waiting for a lock", "I23", _session(0.0, 11.0)),
    Mutation("dead rows", "I23", lambda one: replace(one, tables=(_DEAD,))),
    Mutation(
        "a fault that did not bite", "I24", _experiment(evidence=_UNBITTEN), verdict="unknown"
    ),
    Mutation(
        "a fault that is not healed", "I24", _experiment(healed_at_us=None), verdict="unknown"
    ),
    Mutation("no evidence of faults", "I24", _experiment(evidence={}), verdict="unknown"),
    Mutation("no experiment", "I24", lambda one: replace(one, experiment=None), verdict="unknown"),
)
