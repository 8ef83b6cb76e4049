"""Mutations of tasks on their way, and of what is decided."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from engine.loader import Loader
from engine.outbox import Outbox
from engine.run import Run
from engine.term import Term
from odin.core.decide import Decision, OutboxTask
from odin.core.decide_activity import decide_activity_report, decide_claim
from odin.core.decide_due import decide_due
from odin.core.decide_workflow import decide_report
from odin.core.execution import Execution, copy_of
from odin.core.instance import Instance, TaskOutcome
from odin.core.lease import Lease
from odin.core.wire import ClaimWorkflowTask, TaskEntry
from odin.worker.postbox import REPORT, Postbox
from odin.worker.runs import Runs
from tests.simulation.mutation import Patch, mutation

# --- tasks on their way -------------------------------------------------------------------------


@mutation("nothing sweeps the outbox", "crash_engine", "broker_down")
def sweeper_off() -> list[Patch]:
    async def run(_sweeper: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - the relay's own
        await stop.wait()

    return [("relay.sweep.Sweeper.run", run)]


@mutation(
    "nobody looks for what is due and not in memory",
    "crash_all_engines",
    naps=1,
    nap_seconds=(122, 140),
    finish_seconds=180.0,
)
def due_scan_off() -> list[Patch]:
    async def scan(_loop: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - the due loop
        await stop.wait()

    return [("engine.due.DueLoop._scan", scan)]


@mutation(
    "a new owner does not look for what is due, nor for tasks that are nowhere",
    "crash_engine",
    "crash_all_engines",
)
def timer_lost_at_takeover() -> list[Patch]:
    return [*due_scan_off(), *nothing_brought_back()]


@mutation("what is due to be published again is not", "broker_mischief")
def republish_off() -> list[Patch]:
    def due(execution: Execution, *rest: Any) -> Decision | None:  # noqa: ANN401 - handed on
        decision = decide_due(execution, *rest)
        if decision is None or decision.events:
            return decision

        def is_first(task: OutboxTask) -> bool:
            if task.entry.kind == "w":
                return execution.workflow_task.pushed
            return execution.activities[task.entry.number].state == "backoff"

        decision.tasks = tuple(task for task in decision.tasks if is_first(task))
        return decision

    return [("engine.due.decide_due", due)]


@mutation(
    "a row leaves the outbox before the broker has confirmed it", "broker_down", "broker_mischief"
)
def outbox_row_dropped() -> list[Patch]:
    whole = Outbox.written

    def written(outbox: Outbox, term: Term, outbox_id: int, task: OutboxTask) -> None:
        whole(outbox, term, outbox_id, task)
        term.confirmed([outbox_id])

    return [("engine.outbox.Outbox.written", written)]


@mutation(
    "a row leaves the outbox before it is confirmed, and nothing is published again, ever",
    "crash_engine",
    "broker_down",
)
def outbox_row_dropped_and_nothing_again() -> list[Patch]:
    return [*outbox_row_dropped(), *republish_off(), *nothing_brought_back()]


@mutation(
    "nothing is published again, neither when it is due nor after a takeover",
    "crash_engine",
    "broker_down",
)
def nothing_again() -> list[Patch]:
    return [*republish_off(), *nothing_brought_back()]


@mutation("a new owner does not look for tasks that are nowhere", "crash_engine")
def nothing_brought_back() -> list[Patch]:
    async def bring_back(*_: object) -> None:
        return

    return [("engine.takeover._bring_back", bring_back)]


@mutation("a worker does not say again what is unanswered", "short_cuts", "slow_services")
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


@mutation(
    "the result of an attempt is taken without its token",
    "pause_worker",
    "slow_services",
    "deaf_worker",
)
def result_without_token() -> list[Patch]:
    def report(execution: Execution, command_id: int, _token: str, *rest: Any) -> Any:  # noqa: ANN401 - handed on
        activity = execution.activities.get(command_id)
        token = "" if activity is None else activity.claim_token
        return decide_activity_report(execution, command_id, token, *rest)

    return [("engine.activity_handler.decide_activity_report", report)]


@mutation("a run may close although it has not seen a signal", "slow", "slow_commits")
def closed_unseen() -> list[Patch]:
    def report(execution: Execution, *rest: Any) -> Any:  # noqa: ANN401 - handed on
        blind = copy_of(execution)
        blind.last_message_event_id = 0
        return decide_report(blind, *rest)

    return [("engine.task_handler.decide_report", report)]


@mutation(
    "a report is taken although its task is done or somebody else's state",
    "deaf_worker",
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


_UNANSWERED: Final = ("freeze_engine", "pause_worker", "deaf_worker")
"""What leaves a report without an answer while its task comes again."""


@mutation("a run goes on while its report is unanswered", *_UNANSWERED)
def no_freeze() -> list[Patch]:
    given = Runs._given  # noqa: SLF001 - the mutation

    def thawed(runs: Runs, task: Any, *, from_start: bool) -> None:  # noqa: ANN401 - a grant or a push
        run = runs._runs.get(task.header.run_id)  # noqa: SLF001 - the mutation
        if run is not None:
            run.job = None
        given(runs, task, from_start=from_start)

    return [
        ("odin.worker.runs.Runs._given", thawed),
        ("odin.worker.runs.Runs.defer", lambda _runs, _entry: False),
    ]


@mutation(
    "a report is repeated after five seconds only, claims name a run that waits for its answer,"
    " and such a run would go on",
    *_UNANSWERED,
)
def freeze_alone() -> list[Patch]:
    claim_message, send, run_task = Runs.claim_message, Postbox._send, Instance.run_task  # noqa: SLF001 - the mutation

    def claim(runs: Runs, entry: TaskEntry, seq: int) -> ClaimWorkflowTask:
        run = runs._runs.get(entry.run_id)  # noqa: SLF001 - the mutation
        if run is None or run.job is None or run.instance is None:
            return claim_message(runs, entry, seq)
        token = run.job.task_token
        return ClaimWorkflowTask(seq, entry.shard_id, entry.run_id, entry.number, token, run.held)

    def repeat(postbox: Postbox, shard_ids: Iterable[int]) -> None:
        for shard_id in shard_ids:
            for ask in list(postbox._by_shard.get(shard_id, {}).values()):  # noqa: SLF001 - the mutation
                if ask.rank != REPORT and not ask.done:
                    send(postbox, ask)

    def run(instance: Instance, time_us: int) -> TaskOutcome:
        instance._outstanding = None  # noqa: SLF001 - the mutation
        return run_task(instance, time_us)

    return [
        ("odin.worker.runs.Runs.claim_message", claim),
        ("odin.worker.postbox.Postbox.repeat", repeat),
        ("odin.core.instance.Instance.run_task", run),
    ]


@mutation("a run goes on while its report is unanswered, and nothing else stops it", *_UNANSWERED)
def no_freeze_nor_its_covers() -> list[Patch]:
    return [*no_freeze(), *freeze_alone()]


@mutation(
    "a write that the database could not take just then is refused for good",
    "commits_raise",
)
def passing_failure_is_final() -> list[Patch]:
    return [("engine.ticket.GroupRaisedError.for_caller", lambda error, **_: error)]
