"""The certificate of a workflow execution: what was judged, on which rows, and what came of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.proof.fence_rules import beginnings
from odin.proof.findings import Finding, Verdict, worst
from odin.proof.judge import judge_chain, judge_run
from odin.proof.rows import idempotency_key
from odin.proof.story import ACTIVITY, ACTIVITY_COMPLETED, TIMER, answered, command_of

if TYPE_CHECKING:
    from odin.proof.rows import Chain, EffectRow, EventRow, RunRows

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all parts."""


class WrittenEvent(_Part, frozen=True, kw_only=True):
    """An event, and the fence that it passed: the term, and the process that held it.

    `incarnation` and `node_id` are "" where the term is not known.
    """

    event_id: int
    type: str
    recorded_at: datetime
    committed_at: datetime | None
    range_id: int
    incarnation: str
    node_id: str


class AcceptedAttempt(_Part, frozen=True, kw_only=True):
    """The attempt whose result was taken."""

    attempt: int
    claim_token: str
    worker: str
    started_at: datetime
    ended_at: datetime


class ProvenActivity(_Part, frozen=True, kw_only=True):
    """An activity: how it ended ("" while it has not), and its accepted attempt if it has one."""

    event_id: int
    activity_id: str
    activity_type: str
    idempotency_key: str
    ended: str
    attempts: int
    accepted: tuple[AcceptedAttempt, ...]


class ProvenEffect(_Part, frozen=True, kw_only=True):
    """An effect in a service's ledger.

    `event_id` is the scheduling event of the activity whose key it has; None for an effect that no
    activity of this run has the key of.
    """

    seq: int
    service: str
    kind: str
    order_id: str
    idempotency_key: str
    amount_cents: int
    at: datetime
    event_id: int | None


class RunProof(_Part, frozen=True, kw_only=True):
    """One run: the answer of each invariant, and the evidence."""

    run_id: str
    status: str
    shard_id: int
    started_at: datetime | None
    closed_at: datetime | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    events: tuple[WrittenEvent, ...]
    activities: tuple[ProvenActivity, ...]
    effects: tuple[ProvenEffect, ...]


class Certificate(_Part, frozen=True, kw_only=True):
    """The proof of a workflow execution.

    `findings` are those about the chain of runs as a whole; `read_at` is the database's clock when
    its rows were read, all in one snapshot.
    """

    namespace: str
    workflow_id: str
    verdict: Verdict
    read_at: datetime
    findings: tuple[Finding, ...]
    runs: tuple[RunProof, ...]


def certify(chain: Chain) -> Certificate:
    """Judge every whole run of the chain, and the chain; at least one run is whole."""
    runs = tuple(_proof_of(run) for run in chain.runs if run.is_whole)
    findings = judge_chain(chain)
    return Certificate(
        namespace=chain.namespace,
        workflow_id=chain.workflow_id,
        verdict=worst([*findings, *(finding for run in runs for finding in run.findings)]),
        read_at=_instant(max(run.read_at_us for run in chain.runs)),
        findings=findings,
        runs=runs,
    )


def _proof_of(run: RunRows) -> RunProof:
    findings = judge_run(run)
    row = run.execution
    counts = {"events": len(run.events)}
    for name, rows in (("requests", run.requests), ("outbox", run.outbox)):
        if rows is not None:
            counts[name] = len(rows)
    counts["activities"] = sum(event.type == ACTIVITY for event in run.events)
    counts["timers"] = sum(event.type == TIMER for event in run.events)
    counts["effects"] = len(run.effects or ())
    return RunProof(
        run_id=run.run_id,
        status="" if row is None else row.status,
        shard_id=run.events[0].shard_id if run.events else -1 if row is None else row.shard_id,
        started_at=None if row is None else _instant(row.started_at_us),
        closed_at=None if row is None or row.closed_at_us is None else _instant(row.closed_at_us),
        verdict=worst(findings),
        findings=findings,
        counts=counts,
        events=_written(run),
        activities=_activities(run),
        effects=_effects(run),
    )


def _written(run: RunRows) -> tuple[WrittenEvent, ...]:
    begun = {
        shard_id: beginnings(run.terms or (), shard_id)
        for shard_id in {event.shard_id for event in run.events}
    }
    written: list[WrittenEvent] = []
    for event in run.events:
        term = begun[event.shard_id].get(event.range_id)
        committed_us = event.commit_at_us
        written.append(
            WrittenEvent(
                event_id=event.event_id,
                type=event.type,
                recorded_at=_instant(event.recorded_at_us),
                committed_at=None if committed_us is None else _instant(committed_us),
                range_id=event.range_id,
                incarnation="" if term is None else term.incarnation,
                node_id="" if term is None else term.node_id,
            )
        )
    return tuple(written)


def _activities(run: RunRows) -> tuple[ProvenActivity, ...]:
    ends = answered(run.events)
    return tuple(
        ProvenActivity(
            event_id=event.event_id,
            activity_id=_text(event, "activity_id"),
            activity_type=_text(event, "activity_type"),
            idempotency_key=_key_of(run, event),
            ended="" if (end := ends.get(command_of(event))) is None else end.type,
            attempts=0 if end is None else len(_attempts(end)),
            accepted=() if end is None else _accepted(end),
        )
        for event in run.events
        if event.type == ACTIVITY
    )


def _accepted(end: EventRow) -> tuple[AcceptedAttempt, ...]:
    if end.type != ACTIVITY_COMPLETED:
        return ()
    return tuple(
        AcceptedAttempt(
            attempt=one["attempt"],
            claim_token=one["claim_token"],
            worker=one["worker"],
            started_at=_instant(one["started_us"]),
            ended_at=_instant(one["ended_us"]),
        )
        for one in _attempts(end)
        if one.get("how") == "completed"
    )


def _effects(run: RunRows) -> tuple[ProvenEffect, ...]:
    keys = {_key_of(run, event): event.event_id for event in run.events if event.type == ACTIVITY}
    return tuple(_effect(effect, keys) for effect in run.effects or ())


def _effect(effect: EffectRow, keys: dict[str, int]) -> ProvenEffect:
    return ProvenEffect(
        seq=effect.seq,
        service=effect.service,
        kind=effect.kind,
        order_id=effect.order_id,
        idempotency_key=effect.idempotency_key,
        amount_cents=effect.amount_cents,
        at=_instant(effect.at_us),
        event_id=keys.get(effect.idempotency_key),
    )


def _key_of(run: RunRows, event: EventRow) -> str:
    workflow_id = "" if run.execution is None else run.execution.workflow_id
    return idempotency_key(workflow_id, run.run_id, _text(event, "activity_id"))


def _text(event: EventRow, name: str) -> str:
    return str(event.attributes.get(name, ""))


_NEEDED: Final = {
    "attempt": int,
    "claim_token": str,
    "worker": str,
    "started_us": int,
    "ended_us": int,
}


def _attempts(end: EventRow) -> list[dict[str, Any]]:
    """Return the attempts that can be shown: a damaged one is for the rules to complain about."""
    told = end.attributes.get("attempts", ())
    return [
        one
        for one in (told if isinstance(told, list) else ())
        if isinstance(one, dict) and all(isinstance(one.get(k), t) for k, t in _NEEDED.items())
    ]


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
