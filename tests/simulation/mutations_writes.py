"""Mutations of what leaves and when, of leases and of terms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from engine.lane import Lane
from engine.membership import Membership
from engine.run import Run
from engine.shards import Shards
from engine.store.group import Committed
from engine.store.values import Renewed
from engine.term import Term
from engine.ticket import Settled, ShardLostError, Ticket
from odin.core.decide import Decision
from odin.core.ownership import HandOver
from odin.errors import OdinError
from tests.simulation.mutation import Patch, mutation

# --- what leaves, and when ----------------------------------------------------------------------


@mutation("an answer leaves before its group has committed", "commits_in_doubt")
def answer_before_commit() -> list[Patch]:
    async def wait(_ticket: Ticket, _shard_id: int) -> None:
        return

    def then(_ticket: Ticket, _shard_id: int, settled: Settled) -> None:
        settled(None)

    return [("engine.ticket.Ticket.wait", wait), ("engine.ticket.Ticket.then", then)]


@mutation(
    "a refusal and a repeat leave before what they were taken from has committed",
    "commits_in_doubt",
)
def repeat_before_commit() -> list[Patch]:
    async def settled(_term: Term) -> None:
        return

    return [("engine.term.Term.settled", settled)]


@mutation(
    "a task is pushed before its group has committed", "commits_in_doubt", "gathering_in_doubt"
)
def push_before_commit() -> list[Patch]:
    whole = Term.write

    def write(term: Term, run: Run | None, decision: Decision, **options: Any) -> Ticket:  # noqa: ANN401 - handed on
        ticket = whole(term, run, decision, **options)
        if decision.push:
            term._home.committed(term, decision)  # noqa: SLF001 - the mutation
        return ticket

    return [
        ("engine.term.Term.write", write),
        ("engine.term.Term.is_settled", property(lambda _term: True)),
    ]


# --- leases and terms ---------------------------------------------------------------------------


@mutation("a renewal is counted from its reply", "late_renewal")
def renewal_from_reply() -> list[Patch]:
    take = Membership._take  # noqa: SLF001 - the mutation

    def late(membership: Membership, _sent_at: float, renewed: Renewed) -> None:
        take(membership, membership._clock.boottime(), renewed)  # noqa: SLF001 - the mutation

    return [("engine.membership.Membership._take", late)]


@mutation(
    "a node answers for as long as nobody has told it that its lease is over",
    "lose_database",
)
def lease_never_in_doubt() -> list[Patch]:
    return [("engine.membership.Membership.may_serve", lambda one: not one.expired.is_set())]


@mutation(
    "a shard is answered for until its release is known",
    "release_unheard",
)
def answers_while_releasing() -> list[Patch]:
    async def release(own: Any, hand_over: HandOver) -> None:  # noqa: ANN401 - looked into
        shards, me = own._shards, own._membership.incarnation  # noqa: SLF001 - the mutation
        term = shards.terms.get(hand_over.shard_id)
        if term is not None:
            store = own._store  # noqa: SLF001 - the mutation
            with suppress(OdinError):
                await store.release(term.shard_id, me, term.range_id, heir=hand_over.heir)
            shards.drop(term.shard_id, ShardLostError("released"))

    return [("engine.ownership.Ownership._release", release)]


@mutation(
    "after an unknown outcome the old range goes on, and what is there is read at once",
    "commits_in_doubt",
)
def no_bump_after_unknown() -> list[Patch]:
    async def bump(_lane: Lane, terms: Mapping[int, int]) -> dict[int, int]:
        return dict(terms)

    return [("engine.lane.Lane._bump", bump)]


@mutation("what gathers goes on after an unknown outcome", "gathering_in_doubt")
def gathering_kept() -> list[Patch]:
    return [("engine.lane.Lane.drop", lambda _lane, _terms, _errors: None)]


@mutation(
    "memory goes on as it was after an unknown outcome, under a new range", "commits_in_doubt"
)
def memory_kept_after_unknown() -> list[Patch]:
    def bumped(shards: Shards, ranges: Mapping[int, int]) -> None:
        for shard_id, range_id in ranges.items():
            term = shards.terms.get(shard_id)
            if term is not None:
                term.range_id = range_id

    return [
        ("engine.shards.Shards.terms_lost", lambda _shards, _terms, _errors: None),
        ("engine.shards.Shards.shards_bumped", bumped),
    ]


@mutation("a refused write is taken for a committed one", "starved_lease", orders=40)
def refusal_ignored() -> list[Patch]:
    finish = Lane._finish  # noqa: SLF001 - the mutation

    def blind(lane: Lane, pending: Any, committed: Committed) -> None:  # noqa: ANN401 - the lane's own
        finish(lane, pending, Committed(frozenset(), committed.outbox_ids))

    return [("engine.lane.Lane._finish", blind)]


@mutation("a run leaves memory before its newest group has committed", "slow", "commits_in_doubt")
def eviction_before_commit() -> list[Patch]:
    def take(term: Term, decision: Decision) -> None:
        run = term.runs.get(decision.execution.run_id)
        if run is not None:
            term.remove(run)

    whole = Term.write

    def write(term: Term, run: Run | None, decision: Decision, **options: Any) -> Ticket:  # noqa: ANN401 - handed on
        ticket = whole(term, run, decision, **options)
        take(term, decision)
        return ticket

    return [("engine.term.Term.write", write)]


@mutation(
    "what gathers goes on after an unknown outcome, and is written under the present range",
    "gathering_in_doubt",
    orders=40,
)
def gathering_kept_and_restamped() -> list[Patch]:
    whole = Lane._commit  # noqa: SLF001 - the mutation

    async def restamped(lane: Lane, pending: Any) -> None:  # noqa: ANN401 - the lane's own
        shards: Any = lane._events  # noqa: SLF001 - the mutation
        for shard_id in pending.group.terms:
            term = shards.terms.get(shard_id)
            if term is not None:
                pending.group.terms[shard_id] = term.range_id
        await whole(lane, pending)

    return [*gathering_kept(), ("engine.lane.Lane._commit", restamped)]
