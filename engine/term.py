"""A term: one ownership of one shard by this node.

Everything that memory holds of the shard lives here and dies with it.

A term object is made for every acquisition and every bump, and none is used again: a late answer,
timer or confirm of an older term meets an object that `is_over`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from odin.core.decide import Acknowledged, Decision, Moment
from odin.core.decide_due import Beat, Liveness
from odin.core.history_limits import HistoryLimits
from odin.errors import NotOwnerError, OdinError
from odin.runtime.clock import Clock
from odin.runtime.ids import Ids

from .run import Run
from .ticket import Settled, Ticket

if TYPE_CHECKING:
    from .lane import Lane

log = logging.getLogger(__name__)

GRACE_US: Final = 5_000_000


class Home(Protocol):
    """What a term needs of the node that it belongs to."""

    clock: Clock
    ids: Ids
    history_limits: HistoryLimits

    def now_us(self) -> int:
        """Return a lower bound of the cluster's time."""
        ...

    def is_linked(self, worker: str) -> bool:
        """Return whether the worker's link is open."""
        ...

    def queue_due(self, term: Term, run: Run) -> None:
        """The run's due instant may have moved."""
        ...

    def committed(self, term: Term, decision: Decision) -> None:
        """The decision has committed."""
        ...


class WarmHint:
    """What an inventory said of a run that is not in memory: who keeps it warm, and up to where."""

    __slots__ = ("event_id", "token", "worker")

    def __init__(self, worker: str, token: int, event_id: int) -> None:
        self.worker = worker
        self.token = token
        self.event_id = event_id


class Term:
    """One ownership of a shard.

    Attributes:
        is_over: Nothing may be decided, written or answered under this term any more.
        is_draining: No new decision is taken; the release is under way.
        swept: The inherited outbox rows have been read; `covered` says what they are about.
        requests: What this term has acknowledged lately, by (namespace, workflow id, request id).
    """

    def __init__(self, home: Home, lane: Lane, shard_id: int, range_id: int, began_us: int) -> None:
        self._home = home
        self._lane = lane
        self._newest: Ticket | None = None
        self.shard_id = shard_id
        self.range_id = range_id
        self.began_us = began_us
        self.began_at = home.clock.boottime()
        self.is_over = False
        self.is_draining = False
        self.runs: dict[str, Run] = {}
        self.latest: dict[tuple[str, str], Run] = {}
        self.requests: dict[tuple[str, str, str], tuple[Acknowledged, float]] = {}
        self.hints: dict[str, WarmHint] = {}
        self.beating: dict[tuple[str, int], str] = {}
        self.closings: dict[str, list[Callable[[OdinError | None], None]]] = {}
        self.swept = asyncio.Event()
        self.covered: set[tuple[str, str, int]] = set()

    @property
    def is_serving(self) -> bool:
        """Whether decisions may be taken under this term."""
        return not (self.is_over or self.is_draining)

    def check(self) -> None:
        """Raise unless decisions may be taken.

        Raises:
            NotOwnerError: The term is over, or the shard is being handed over.
        """
        if not self.is_serving:
            raise NotOwnerError(f"shard {self.shard_id} is moving; ask again")

    def now_us(self) -> int:
        """Return a lower bound of the cluster's time."""
        return self._home.now_us()

    def moment(self, run: Run | None = None) -> Moment:
        """Return the moment for a decision now."""
        return Moment(
            self._home.now_us(),
            self.range_id,
            self._home.ids.batch_random(),
            sticky=run is not None and run.warm != "" and self._home.is_linked(run.warm),
            limits=self._home.history_limits,
        )

    def liveness(self, run: Run) -> Liveness:
        """Return what memory knows of the run's started attempts; it follows new heartbeats."""
        known = run.liveness
        if known is None:
            known = run.liveness = Liveness(run.beats, self.began_us + GRACE_US, self.began_us)
        return known

    def add(self, run: Run, *, is_newest: bool) -> None:
        """Keep a run that was loaded or begun.

        Args:
            run: The run.
            is_newest: Whether it is known to be the newest run of its workflow id. An open run
                always is; a closed one that was asked for by its run id may have successors.
        """
        execution = run.execution
        self.runs[execution.run_id] = run
        if is_newest or execution.is_open:
            self.latest[execution.namespace, execution.workflow_id] = run

    def adopt(self, run: Run) -> None:
        """Take over what inventories said of a run before it was loaded, and queue what is due."""
        execution = run.execution
        hint = self.hints.pop(execution.run_id, None)
        if hint is not None and hint.token in (execution.state_token, execution.task_token):
            run.warm, run.warm_event_id = hint.worker, hint.event_id
        for command_id, activity in execution.activities.items():
            if self.beating.pop((execution.run_id, command_id), None) == activity.claim_token != "":
                run.beats[command_id] = Beat(self._home.now_us(), activity.heartbeat_details)
        self._home.queue_due(self, run)

    def touched(self) -> float:
        """Return the instant that counts as a use of a run now."""
        return self._home.clock.boottime()

    def remove(self, run: Run) -> None:
        """Forget a run whose newest group has committed."""
        execution = run.execution
        self.runs.pop(execution.run_id, None)
        key = (execution.namespace, execution.workflow_id)
        if self.latest.get(key) is run:
            del self.latest[key]

    def write(
        self,
        run: Run | None,
        decision: Decision,
        *,
        alone: bool = False,
        after: Callable[[], None] | None = None,
    ) -> Ticket:
        """Take `decision` into memory and into the gathering group, with all that comes with it.

        Args:
            run: The run that it was taken on; None for one that it begins.
            decision: What to write.
            alone: Give it a group of its own.
            after: Called once the group has committed, before its waiters learn of it.
        """
        self._take(run, decision)
        for also in decision.also:
            self._take(None, also)
        ticket = self._lane.add(
            self.shard_id, self.range_id, decision, alone=alone, after=self._leaves(decision, after)
        )
        self._newest = ticket
        return ticket

    def then(self, settled: Settled) -> None:
        """Call `settled` once everything decided so far has committed, or has not."""
        if self._newest is None or self._newest.is_over:
            settled(None if self._newest is None else self._newest.error(self.shard_id))
        else:
            self._newest.then(self.shard_id, settled)

    async def settled(self) -> None:
        """Return once everything decided so far has committed.

        Raises:
            ShardLostError, GroupUnknownError, GroupRaisedError: It has not; the term is over.
        """
        if self._newest is not None:
            await self._newest.wait(self.shard_id)

    async def drained(self) -> None:
        """Return once the outcome of everything decided so far is known, whatever it is."""
        try:
            await self.settled()
        except OdinError:
            return

    @property
    def is_settled(self) -> bool:
        """Whether nothing of this term is on its way."""
        return self._newest is None or self._newest.is_over

    def confirmed(self, outbox_ids: list[int]) -> None:
        """Delete confirmed outbox rows with the next group."""
        if not self.is_over:
            self._lane.delete_outbox(self.shard_id, self.range_id, outbox_ids)

    def end(self, error: OdinError) -> None:
        """The term is over: whoever waits for something of it learns so."""
        self.is_over = True
        closings, self.closings = self.closings, {}
        for waiting in closings.values():
            for closed in waiting:
                closed(error)
        self.runs.clear()
        self.latest.clear()
        self.requests.clear()

    def _take(self, run: Run | None, decision: Decision) -> None:
        if run is None:
            run = self.runs.get(decision.execution.run_id) or Run(
                decision.execution, self._home.clock.boottime()
            )
        run.touched_at = self._home.clock.boottime()
        if decision.events and self._home.history_limits.is_crossed(
            run.execution, decision.execution
        ):
            log.warning(
                "history grows long, let the run continue as new",
                extra={
                    "workflow_id": decision.execution.workflow_id,
                    "run_id": decision.execution.run_id,
                    "events": decision.execution.next_event_id - 1,
                    "bytes": decision.execution.history_bytes,
                },
            )
        run.take(decision)
        if decision.is_new:
            self.add(run, is_newest=True)
        known = decision.acknowledged
        if known is not None:
            execution = decision.execution
            key = (execution.namespace, execution.workflow_id, known.request_id)
            self.requests[key] = (known, run.touched_at)
        self._home.queue_due(self, run)

    def _leaves(
        self, decision: Decision, after: Callable[[], None] | None
    ) -> Callable[[], None] | None:
        """Return what happens when the decision has committed.

        Pushes, stopped attempts, closings.
        """
        loud = decision.push or decision.stopped or decision.also or decision.is_new
        if not loud and decision.execution.is_open:
            return after

        def leave() -> None:
            if after is not None:
                after()
            for one in (decision, *decision.also):
                self._home.committed(self, one)
                if not one.execution.is_open:
                    for closed in self.closings.pop(one.execution.run_id, ()):
                        closed(None)

        return leave
