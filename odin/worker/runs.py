"""Workflow tasks: the runs in memory, what they are fed with, and what they report.

    granted or pushed ──▶ gathering (pages are fetched) ──▶ queued ──▶ run ──▶ reported ──▶ warm
                                                                        refused, failed ──▶ dropped

A run does one thing at a time. While a report of it is unanswered its state is frozen: a push is
discarded, a task from a queue waits. A token is named only for events that are all held: it comes
with an accepted report, and covers exactly what has been applied.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from odin.core.definition import WorkflowInfo
from odin.core.door import fit_failure
from odin.core.failures import WorkflowTaskError
from odin.core.instance import Instance, StaleInstanceError, TaskOutcome
from odin.core.payload import Failure
from odin.core.wire import (
    ClaimWorkflowTask,
    Evicted,
    FetchHistory,
    HistoryPage,
    PushWorkflowTask,
    ReportWorkflowTask,
    ReportWorkflowTaskFailure,
    TaskEntry,
    WarmRun,
    WorkflowTaskAccepted,
    WorkflowTaskGranted,
)
from odin.errors import InvalidArgumentError, OdinError
from odin.worker.postbox import CLAIM, REPORT, Ask, Postbox
from odin.worker.run_state import Job, RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.worker.registry import Registry
    from odin.worker.telemetry import WorkerTelemetry

WARM_WITHOUT_ANSWER_SECONDS: Final = 10.0
"""A run whose report has no answer for this long leaves the memory; the report stays."""

log = logging.getLogger(__name__)


class RunsHost(Protocol):
    """What the runs need of the worker."""

    def send_to_owner(self, shard_id: int, message: object) -> bool:
        """Send without waiting for an answer."""
        ...

    def take_again(self, entries: Sequence[TaskEntry]) -> None:
        """Ask for these tasks now."""
        ...

    def soon(self, run: Callable[[], None]) -> None:
        """Call once the running callbacks are done."""
        ...


class Runs:
    """All runs of one worker.

    Args:
        registry: The workflows.
        postbox: Where reports and fetches go.
        host: The worker.
        now: Seconds that only go forward.
        make_report_id: Returns a new report id.
        cache_max: How many runs stay in memory between their tasks.
        telemetry: Takes the numbers.
    """

    def __init__(  # noqa: PLR0913 - a composition
        self,
        registry: Registry,
        postbox: Postbox,
        host: RunsHost,
        *,
        now: Callable[[], float],
        make_report_id: Callable[[], str],
        cache_max: int,
        telemetry: WorkerTelemetry,
    ) -> None:
        self._registry = registry
        self._postbox = postbox
        self._host = host
        self._now = now
        self._make_report_id = make_report_id
        self._cache_max = cache_max
        self._telemetry = telemetry
        self._runs: dict[str, RunState] = {}
        self._idle: OrderedDict[str, RunState] = OrderedDict()
        self._queue: deque[RunState] = deque()
        self._stopped = False
        self.running_run_id = ""

    # What is so.

    @property
    def warm_count(self) -> int:
        """Runs in memory."""
        return sum(run.instance is not None for run in self._runs.values())

    @property
    def busy_count(self) -> int:
        """Runs that have a task in hand or a report unanswered."""
        return len(self._runs) - len(self._idle)

    def warm(self, shard_ids: set[int] | None) -> list[WarmRun]:
        """Return the warm runs of these shards, or of all."""
        return [
            WarmRun(run.header.shard_id, run_id, run.token, run.held)
            for run_id, run in self._runs.items()
            if run.token is not None
            and run.instance is not None
            and (shard_ids is None or run.header.shard_id in shard_ids)
        ]

    def defer(self, entry: TaskEntry) -> bool:
        """Keep the task until the run's report is answered. Returns False for a run at rest."""
        run = self._runs.get(entry.run_id)
        if run is None or run.job is None:
            return False
        if entry.number >= run.job.number:
            run.deferred = entry
        return True

    def claim_message(self, entry: TaskEntry, seq: int) -> ClaimWorkflowTask:
        """Return the claim for a task, naming what is held of its run at this moment."""
        run = self._idle.get(entry.run_id)
        if run is None or run.token is None:
            return ClaimWorkflowTask(seq, entry.shard_id, entry.run_id, entry.number)
        return ClaimWorkflowTask(
            seq, entry.shard_id, entry.run_id, entry.number, run.token, run.held
        )

    # What happens.

    def granted(self, task: WorkflowTaskGranted) -> None:
        """A claim was granted."""
        self._given(task, from_start=task.from_start)

    def pushed(self, task: PushWorkflowTask) -> None:
        """The owner hands over the next task of a run that it believes to be warm here."""
        if not self._stopped:
            self._given(task, from_start=False)

    def _given(self, task: WorkflowTaskGranted | PushWorkflowTask, *, from_start: bool) -> None:
        run_id = task.header.run_id
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = RunState(task.header)
        elif run.job is not None or task.number <= run.done_number:
            return  # frozen, or done already
        self._idle.pop(run_id, None)
        if from_start or run.instance is None:
            self._let_go(run)
        run.job = job = Job(task, run.held + 1)
        job.feed(task.events)
        if job.complete:
            self._enqueue(run)
        else:
            self._fetch(run, job)

    def _fetch(self, run: RunState, job: Job) -> None:
        shard_id, run_id = run.header.shard_id, run.header.run_id
        self._postbox.post(
            Ask(
                ("h", run_id),
                shard_id,
                CLAIM,
                lambda seq: FetchHistory(seq, shard_id, run_id, job.next_id - 1, job.upper),
                lambda answer: self._fetched(run, job, answer),
            )
        )

    def _fetched(self, run: RunState, job: Job, answer: Any) -> None:  # noqa: ANN401 - a wire message
        if run.job is not job:
            return
        if not isinstance(answer, HistoryPage) or not job.feed(answer.events):
            log.warning("history is not to be had", extra={"run_id": run.header.run_id})
            self._drop(run, tell=True)
        elif job.complete:
            self._enqueue(run)
        else:
            self._fetch(run, job)

    def _enqueue(self, run: RunState) -> None:
        self._queue.append(run)
        if len(self._queue) == 1:
            self._host.soon(self._work)

    def _work(self) -> None:
        """Run one queued task; the loop gets its turn before the next one."""
        run = self._queue.popleft()
        if self._queue:
            self._host.soon(self._work)
        job = run.job
        if job is not None and self._runs.get(run.header.run_id) is run:
            self.running_run_id = run.header.run_id
            try:
                self._run(run, job)
            except Exception as error:  # whatever it is, the run must not stay frozen in silence
                log.exception("workflow task cannot be run", extra={"run_id": run.header.run_id})
                text = f"the worker cannot run this task: {type(error).__name__}: {error}"
                self._report_failure(run, job, Failure(text, "worker", "TaskNotRun"))
            finally:
                self.running_run_id = ""

    def _run(self, run: RunState, job: Job) -> None:
        header = run.header
        definition = self._registry.workflows.get(header.workflow_type)
        if definition is None:
            message = self._registry.unknown_workflow(header.workflow_type)
            self._report_failure(run, job, Failure(message, "worker", "UnknownWorkflowType"))
            return
        instance = run.instance
        if instance is None:
            info = WorkflowInfo(header.namespace, header.workflow_id, header.run_id)
            instance = run.instance = Instance(definition, info)
            self._telemetry.count("workflow_replays")
        try:
            instance.apply(job.events)
        except StaleInstanceError as error:
            self._start_over(run, job, error)
            return
        except WorkflowTaskError:
            pass  # run_task says so too, as the outcome that is reported
        run.held = instance.last_event_id
        run.token = None
        outcome = instance.run_task(job.time_us)
        self._telemetry.count("workflow_tasks")
        for notice in outcome.notices:
            log.warning("notice of a workflow", extra={"notice": notice, "run_id": header.run_id})
        if outcome.failure is not None:
            self._report_failure(run, job, outcome.failure)
        else:
            self._report(run, job, outcome)

    def _start_over(self, run: RunState, job: Job, error: OdinError) -> None:
        """What is held does not fit the history: read it from its start, once."""
        log.warning("run does not fit", extra={"run_id": run.header.run_id, "why": str(error)})
        from_start = bool(job.events) and job.events[0].event_id == 1
        self._let_go(run)
        if from_start:
            self._drop(run, tell=True)
            return
        job.events, job.next_id = [], 1
        self._fetch(run, job)

    def _report(self, run: RunState, job: Job, outcome: TaskOutcome) -> None:
        header, report_id = run.header, self._make_report_id()
        sticky = self._cache_max > 0 and not self._stopped
        run.reported_at = self._now()

        def make(seq: int) -> ReportWorkflowTask:
            return ReportWorkflowTask(
                seq,
                report_id,
                header.shard_id,
                header.run_id,
                job.number,
                job.task_token,
                outcome.seen,
                outcome.time_us,
                outcome.commands,
                sticky=sticky and run.instance is not None,
            )

        def unsendable(error: InvalidArgumentError) -> None:
            message = f"the commands of one workflow task are too large: {error}"
            self._report_failure(run, job, Failure(message, "worker", "TaskTooLarge"))

        self._postbox.post(
            Ask(
                ("r", header.run_id),
                header.shard_id,
                REPORT,
                make,
                lambda answer: self._reported(run, job, answer),
                on_unsendable=unsendable,
            )
        )

    def _report_failure(self, run: RunState, job: Job, failure: Failure) -> None:
        header, report_id = run.header, self._make_report_id()
        failure = fit_failure(failure)
        log.error(
            "workflow task failed",
            extra={
                "workflow_id": header.workflow_id,
                "run_id": header.run_id,
                "workflow_type": header.workflow_type,
                "error_type": failure.type,
                "detail": failure.message,
                "source": failure.source,
            },
        )
        self._telemetry.count("workflow_task_failures")
        self._let_go(run)
        run.reported_at = self._now()
        self._postbox.post(
            Ask(
                ("r", header.run_id),
                header.shard_id,
                REPORT,
                lambda seq: ReportWorkflowTaskFailure(
                    seq,
                    report_id,
                    header.shard_id,
                    header.run_id,
                    job.number,
                    job.task_token,
                    failure,
                ),
                lambda _: self._drop(run, tell=True),
            )
        )

    def _reported(self, run: RunState, job: Job, answer: Any) -> None:  # noqa: ANN401 - a wire message
        instance = run.instance
        if not isinstance(answer, WorkflowTaskAccepted):
            self._telemetry.count("workflow_reports_refused")
            self._drop(run, tell=True)
            return
        if answer.closed or instance is None or not answer.complete:
            self._drop(run, tell=not answer.closed)
            return
        held, events = run.held, answer.events
        if events and events[0].event_id <= held:
            events = tuple(event for event in events if event.event_id > held)
        try:
            instance.apply(events)
        except (OdinError, msgspec.MsgspecError, LookupError, ValueError) as error:
            log.warning(
                "answer to a report does not fit",
                extra={"run_id": run.header.run_id, "why": str(error)},
            )
            self._drop(run, tell=True)
            return
        if instance.closed or self._stopped or not self._cache_max:
            self._drop(run, tell=not instance.closed)
            return
        run.held, run.token = instance.last_event_id, answer.token
        run.job, run.reported_at, run.done_number = None, None, job.number
        self._idle[run.header.run_id] = run
        while len(self._idle) > self._cache_max:
            self._drop(next(iter(self._idle.values())), tell=True)
        self._again(run)

    def _again(self, run: RunState) -> None:
        entry, run.deferred = run.deferred, None
        if entry is not None and entry.number > run.done_number:
            self._host.take_again((entry,))

    def _let_go(self, run: RunState) -> None:
        """Drop the warm state, keep what is to be reported."""
        instance, run.instance = run.instance, None
        run.held, run.token = 0, None
        if instance is not None:
            instance.evict()

    def _drop(self, run: RunState, *, tell: bool) -> None:
        """Forget the run; with `tell` its owner learns that it is no longer warm."""
        header = run.header
        self._let_go(run)
        run.job = None
        if self._runs.get(header.run_id) is run:
            del self._runs[header.run_id]
        self._idle.pop(header.run_id, None)
        if tell:
            self._host.send_to_owner(header.shard_id, Evicted(header.shard_id, header.run_id))
        self._again(run)

    def tick(self) -> None:
        """Let go of runs whose report has had no answer for too long. Call every second or so."""
        before = self._now() - WARM_WITHOUT_ANSWER_SECONDS
        for run in self._runs.values():
            if run.reported_at is not None and run.reported_at < before:
                self._let_go(run)

    def stop(self) -> None:
        """Take no further pushes and keep nothing warm; reports under way are still answered."""
        self._stopped = True
        for run in list(self._idle.values()):
            self._drop(run, tell=True)
