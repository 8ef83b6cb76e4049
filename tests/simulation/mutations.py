"""Mutations of odin's own code, each of which the simulation must find.

A mutation takes one guard out by replacing a function while a world lives. `seeds` that find it
stand in test_mutations.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import msgspec

from engine.lane import Lane
from engine.loader import Loader
from engine.membership import Membership
from engine.run import Run
from engine.shards import Shards
from engine.store.group import Committed
from engine.store.values import Renewed
from engine.term import Term
from engine.ticket import Settled, ShardLostError, Ticket
from odin.core.decide import Decision
from odin.core.decide_activity import decide_activity_report, decide_claim
from odin.core.decide_workflow import decide_report
from odin.core.execution import Execution, copy_of
from odin.core.lease import Lease
from odin.core.ownership import HandOver
from odin.worker.postbox import Postbox
from odin.worker.runs import Runs

Patch = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One guard taken out.

    Args:
        says: What is broken.
        kinds: The faults that bring it out.
        patches: Returns what to replace by what, each as (dotted name, replacement).
    """

    says: str
    kinds: list[str] | None
    patches: Callable[[], list[Patch]]

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Run the block with the guard taken out."""
        with ExitStack() as stack:
            for name, replacement in self.patches():
                stack.enter_context(patch(name, replacement))
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(
    says: str, *kinds: str
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Register the patches of a mutation under the function's name."""

    def register(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        MUTATIONS[patches.__name__] = Mutation(says, list(kinds) or None, patches)
        return patches

    return register


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


@mutation("a task is pushed before its group has committed", "commits_in_doubt")
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


@mutation("a renewal is counted from its reply", "freeze_at_call")
def renewal_from_reply() -> list[Patch]:
    take = Membership._take  # noqa: SLF001 - the mutation

    def late(membership: Membership, _sent_at: float, renewed: Renewed) -> None:
        take(membership, membership._clock.boottime(), renewed)  # noqa: SLF001 - the mutation

    return [("engine.membership.Membership._take", late)]


@mutation(
    "a node answers for as long as nobody has told it that its lease is over",
    "isolate_engine",
    "freeze_engine",
)
def lease_never_in_doubt() -> list[Patch]:
    return [("engine.membership.Membership.may_serve", lambda one: not one.expired.is_set())]


@mutation(
    "a shard is answered for until its release is known",
    "crash_engine",
    "stop_engine",
    "freeze_at_call",
)
def answers_while_releasing() -> list[Patch]:
    async def release(own: Any, hand_over: HandOver) -> None:  # noqa: ANN401 - looked into
        shards, me = own._shards, own._membership.incarnation  # noqa: SLF001 - the mutation
        term = shards.terms.get(hand_over.shard_id)
        if term is not None:
            store = own._store  # noqa: SLF001 - the mutation
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


@mutation("what gathers goes on after an unknown outcome", "commits_in_doubt")
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


@mutation("a refused write is taken for a committed one", "freeze_engine", "isolate_engine")
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


# --- tasks on their way -------------------------------------------------------------------------


@mutation("nothing sweeps the outbox", "crash_engine", "broker_down")
def sweeper_off() -> list[Patch]:
    async def run(_sweeper: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - the relay's own
        await stop.wait()

    return [("relay.sweep.Sweeper.run", run)]


@mutation("a new owner does not look for what is due", "crash_engine", "crash_all_engines")
def timer_lost_at_takeover() -> list[Patch]:
    async def scan(_loop: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - the due loop
        await stop.wait()

    return [("engine.due.DueLoop._scan", scan)]


@mutation("a worker does not say again what is unanswered", "cut", "crash_engine", "isolate_engine")
def no_repeats() -> list[Patch]:
    def tick(postbox: Postbox) -> None:
        postbox._fresh.clear()  # noqa: SLF001 - the mutation

    return [
        ("odin.worker.postbox.Postbox.repeat", lambda _postbox, _shards: None),
        ("odin.worker.postbox.Postbox.tick", tick),
    ]


# --- deciding -----------------------------------------------------------------------------------


@mutation("a claim is granted whoever holds the attempt", "broker_mischief", "cut", "crash_engine")
def claim_without_compare() -> list[Patch]:
    def claim(execution: Execution, command_id: int, *rest: Any) -> Any:  # noqa: ANN401 - handed on
        activity = execution.activities.get(command_id)
        if activity is not None and activity.state == "started":
            free = msgspec.structs.replace(
                activity, state="scheduled", attempt=activity.attempt - 1, claim_token=""
            )
            execution = copy_of(execution)
            execution.activities[command_id] = free
        return decide_claim(execution, command_id, *rest)

    return [("engine.activity_handler.decide_claim", claim)]


@mutation("the result of an attempt is taken without its token", "freeze_worker", "crash_worker")
def result_without_token() -> list[Patch]:
    def report(execution: Execution, command_id: int, _token: str, *rest: Any) -> Any:  # noqa: ANN401 - handed on
        activity = execution.activities.get(command_id)
        token = "" if activity is None else activity.claim_token
        return decide_activity_report(execution, command_id, token, *rest)

    return [("engine.activity_handler.decide_activity_report", report)]


@mutation("a run may close although it has not seen a signal", "freeze_worker", "slow")
def closed_unseen() -> list[Patch]:
    def report(execution: Execution, *rest: Any) -> Any:  # noqa: ANN401 - handed on
        blind = copy_of(execution)
        blind.last_message_event_id = 0
        return decide_report(blind, *rest)

    return [("engine.task_handler.decide_report", report)]


@mutation(
    "a report is taken although its task is done or somebody else's state",
    "freeze_worker",
    "crash_worker",
    "slow",
)
def report_without_token() -> list[Patch]:
    def refusal(execution: Execution, *_: object) -> str | None:
        return None if execution.is_open else "closed"

    return [("odin.core.decide_workflow._refusal", refusal)]


@mutation(
    "a request is decided again each time that it comes", "crash_engine", "cut", "commits_in_doubt"
)
def requests_forgotten() -> list[Patch]:
    lookup = Loader.lookup

    async def forgetful(
        loader: Loader,
        term: Term,
        request: Any,  # noqa: ANN401 - one of several
        *,
        run_id: str | None = None,
    ) -> tuple[Run | None, None]:
        run, _ = await lookup(loader, term, request, run_id=run_id)
        return run, None

    return [("engine.loader.Loader.lookup", forgetful)]


@mutation("a node takes the cluster's time for a second later than it is", "cut")
def timers_early() -> list[Patch]:
    whole = Lease.cluster_time_us

    def early(lease: Lease, boottime: float) -> int:
        return whole(lease, boottime) + 1_000_000

    return [("odin.core.lease.Lease.cluster_time_us", early)]


@mutation(
    "a run goes on while its report is unanswered", "slow", "freeze_engine", "commits_in_doubt"
)
def no_freeze() -> list[Patch]:
    given = Runs._given  # noqa: SLF001 - the mutation

    def thawed(runs: Runs, task: Any, *, from_start: bool) -> None:  # noqa: ANN401 - a grant or a push
        run = runs._runs.get(task.header.run_id)  # noqa: SLF001 - the mutation
        if run is not None:
            run.job = None
        given(runs, task, from_start=from_start)

    return [("odin.worker.runs.Runs._given", thawed)]


@mutation(
    "a write that the database could not take just then is refused for good",
    "commits_in_doubt",
    "database_trouble",
)
def passing_failure_is_final() -> list[Patch]:
    return [("engine.ticket.GroupRaisedError.for_caller", lambda error, **_: error)]
