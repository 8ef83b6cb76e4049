"""The desk where everything meets: tasks come in, claims go out, grants are run, results leave.

    broker or engine ──▶ TaskBook ──claims──▶ Postbox ──▶ the shard's owner
                            ▲                                │ granted
                            └── slots ── Attempts, Runs ◀────┘
                                             └── results, reports ──▶ Postbox

All of it runs in callbacks of one event loop and never waits. What the book wants done is done in
`_flush`, which every entry point ends with.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odin.core.tasks import ACTIVITY
from odin.core.wire import (
    ActivityTaskGranted,
    CancelActivity,
    ClaimActivityTask,
    Inventory,
    PushWorkflowTask,
    Release,
    Tasks,
    WorkflowTaskGranted,
)
from odin.worker.attempts import Attempts
from odin.worker.book import Claim, Effects, TaskBook
from odin.worker.postbox import CLAIM, Ask, Postbox
from odin.worker.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from odin.core.wire import ClaimWorkflowTask, TaskEntry
    from odin.runtime.ids import Ids
    from odin.runtime.links import Link, Message
    from odin.worker.engines import Engines
    from odin.worker.options import WorkerOptions
    from odin.worker.registry import Registry
    from odin.worker.sources import Ackable, EmbeddedSource
    from odin.worker.telemetry import WorkerTelemetry

_GIVE_BACK_SECONDS: Final = 5

log = logging.getLogger(__name__)


class Desk:
    """The state of one worker, and how its parts are tied together.

    Args:
        options: The worker's settings.
        registry: What it can run.
        telemetry: Takes the numbers.
        ids: Where tokens come from.
        now: Seconds that only go forward.
        executor: Returns where plain functions run.
    """

    def __init__(
        self,
        options: WorkerOptions,
        registry: Registry,
        telemetry: WorkerTelemetry,
        ids: Ids,
        *,
        now: Callable[[], float],
        executor: Callable[[], Executor],
    ) -> None:
        self._telemetry = telemetry
        self._now = now
        self._flushing = False
        self._stopped = False
        self._seconds = 0
        self.engines: Engines | None = None
        self.embedded: EmbeddedSource | None = None
        self.book = TaskBook(
            options.max_concurrent_activities,
            options.max_concurrent_workflow_tasks,
            ids.claim_token,
        )
        self.postbox = Postbox(self._route, now, self._learn)
        self.runs = Runs(
            registry,
            self.postbox,
            self,
            now=now,
            make_report_id=ids.report_id,
            cache_max=options.max_cached_workflows,
            telemetry=telemetry,
        )
        self.attempts = Attempts(registry, self.postbox, self, telemetry, executor)

    def _route(self, shard_id: int) -> Link | None:
        return None if self.engines is None else self.engines.owner(shard_id)

    def _learn(self, entry: Any) -> None:  # noqa: ANN401 - a ShardEntry
        if self.engines is not None:
            self.engines.learn(entry)

    # Tasks come in.

    def take(self, delivery: Ackable | None, entries: Sequence[TaskEntry]) -> None:
        """Take the tasks that a message names; it is acknowledged once they are settled."""
        self.book.take(delivery, entries)
        self._flush()

    def _flush(self) -> None:
        """Do what the book wants done."""
        if self._flushing:
            return  # the call further up goes on with what has come up meanwhile
        self._flushing = True
        try:
            while effects := self.book.drain():
                self._do(effects)
        finally:
            self._flushing = False
        if self.embedded is not None and not self._stopped:
            self.embedded.freed()

    def _do(self, effects: Effects) -> None:
        for claim in effects.claims:
            self._claim(claim)
        for claim, grant in effects.starts:
            if claim.entry.kind == ACTIVITY:
                self.attempts.start(grant)
            else:
                self.runs.granted(grant)
        for claim in effects.withdrawals:
            self.postbox.withdraw(("c", *claim.key))
        if effects.releases:
            self._release(effects.releases)
        for delivery in effects.acks:
            delivery.ack()

    def _claim(self, claim: Claim) -> None:
        entry = claim.entry
        make: Callable[[int], ClaimActivityTask | ClaimWorkflowTask]
        if entry.kind == ACTIVITY:
            make = partial(_activity_claim, entry, claim.token)
        elif self.runs.defer(entry):
            self.book.not_wanted(claim)
            return
        else:
            make = partial(self.runs.claim_message, entry)
        ask = Ask(
            ("c", *claim.key), entry.shard_id, CLAIM, make, partial(self._claim_answered, claim)
        )
        ask.on_late = partial(self._claim_late, claim, ask)
        self.postbox.post(ask)

    def _claim_answered(self, claim: Claim, answer: Message) -> None:
        kind = type(answer)
        if kind is ActivityTaskGranted or kind is WorkflowTaskGranted:
            self.book.granted(claim, answer)
        else:
            self._telemetry.count("not_wanted")
            self.book.not_wanted(claim)
        self._flush()

    def _claim_late(self, claim: Claim, ask: Ask) -> None:
        self._telemetry.count("parked")
        self.book.late(claim, sent=ask.sent)
        self._flush()

    def _release(self, entries: Sequence[TaskEntry]) -> None:
        """Give tasks back to their owners; without a link their own due time brings them back."""
        self._telemetry.count("released", len(entries))
        by_owner: dict[Link, list[TaskEntry]] = {}
        for entry in entries:
            link = self._route(entry.shard_id)
            if link is not None:
                by_owner.setdefault(link, []).append(entry)
        for link, tasks in by_owner.items():
            link.send(Release(tuple(tasks)))

    # What the engines say.

    def engine_message(self, link: Link, message: Message) -> None:
        """A message that answers nothing."""
        kind = type(message)
        if kind is PushWorkflowTask:
            self.runs.pushed(message)
        elif kind is Tasks:
            if self.embedded is not None:
                self.embedded.tasks(link, message)
        elif kind is CancelActivity:
            self._cancel(message)

    def _cancel(self, message: CancelActivity) -> None:
        token = message.claim_token
        if not self.attempts.cancel(token, message.reason) and self.book.drop_ready(token):
            self._flush()

    def inventory(self, shard_ids: set[int] | None) -> Inventory:
        """Return what is held of these shards, or of all."""
        return Inventory(
            None if shard_ids is None else tuple(sorted(shard_ids)),
            tuple(self.book.held(shard_ids)),
            tuple(self.runs.warm(shard_ids)),
        )

    def shards_moved(self, shard_ids: set[int]) -> None:
        """These shards have an owner that can be asked: say again what is unanswered."""
        self.postbox.repeat(shard_ids)
        self.book.owner_back(shard_ids)
        self._flush()

    # What runs and attempts say.

    def send_to_owner(self, shard_id: int, message: object) -> bool:
        """Send without waiting for an answer; False if there is nobody to send to."""
        link = self._route(shard_id)
        return link is not None and link.send(message)

    def take_again(self, entries: Sequence[TaskEntry]) -> None:
        """Ask for tasks that were kept back."""
        self.take(None, entries)

    def soon(self, run: Callable[[], None]) -> None:
        """Call once the running callbacks are done."""
        asyncio.get_running_loop().call_soon(run)

    def attempt_finished(self, claim_token: str) -> None:
        """A slot is free."""
        self.book.finished(claim_token)
        self._flush()

    def attempt_answered(self, claim_token: str) -> None:
        """Nothing more is to be said of an attempt."""
        self.book.answered(claim_token)

    # Time, and the end.

    def tick(self) -> None:
        """Call every 0.1 s."""
        self.postbox.tick()

    def tick_slowly(self) -> None:
        """Call every second."""
        self.runs.tick()
        self._seconds += 1
        if self._seconds % _GIVE_BACK_SECONDS == 0:
            self.book.give_back()
            self._flush()
        engines = self.engines
        if engines is not None:
            self.attempts.check_contact(
                lambda shard_id: engines.owner(shard_id) is not None,
                self._now(),
                isolated=engines.linked == 0,
            )
        gauge = self._telemetry.gauge
        gauge("engines_linked", 0 if engines is None else engines.linked)
        gauge("activity_slots_free", self.book.activity_free)
        gauge("activities_running", self.book.running)
        gauge("workflows_warm", self.runs.warm_count)
        gauge("tasks_parked", self.book.parked)
        gauge("unanswered", len(self.postbox))

    def stop_taking(self) -> None:
        """Claim nothing more, give back what is not begun, keep nothing warm."""
        self._stopped = True
        self.attempts.stop_starting()
        self.book.stop()
        self._flush()
        self.runs.stop()


def _activity_claim(entry: TaskEntry, token: str, seq: int) -> ClaimActivityTask:
    return ClaimActivityTask(seq, entry.shard_id, entry.run_id, entry.number, entry.attempt, token)
