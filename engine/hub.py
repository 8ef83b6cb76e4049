"""The engine's end of the workers' links.

Who is linked, what they say, and what they must be told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odin.core import wire
from odin.core.decide import Decision
from odin.core.decide_due import Beat
from odin.core.decide_workflow import decide_republish_task
from odin.errors import OdinError
from odin.runtime.links import Link, LinkClosedError, Message

from .activity_handler import ActivityHandler
from .loader import Loader
from .replies import Replies, header_of, page_of
from .run import Run
from .sessions import Session, Sessions
from .shards import Shards
from .term import Term, WarmHint

log = logging.getLogger(__name__)


class Nodes(Protocol):
    """What the hub tells workers of the cluster."""

    incarnation: str
    node_id: str

    def entries(self) -> tuple[wire.NodeEntry, ...]:
        """Return all live engines."""
        ...


class Hub:
    """Serves workers' links."""

    def __init__(
        self,
        shards: Shards,
        loader: Loader,
        sessions: Sessions,
        replies: Replies,
        nodes: Nodes,
    ) -> None:
        self._shards = shards
        self._loader = loader
        self._nodes = nodes
        self.sessions = sessions
        self._handler = handler = ActivityHandler(shards, loader, sessions, replies)
        self.refused_count = 0
        self.on_slots: Callable[[], None] = lambda: None
        self._handlers: dict[type, Callable[[Session, Any], None]] = {
            wire.ClaimWorkflowTask: handler.claim,
            wire.ClaimActivityTask: handler.claim_activity,
            wire.ReportWorkflowTask: handler.report,
            wire.ReportWorkflowTaskFailure: handler.report_failure,
            wire.ReportActivityTask: handler.report_activity,
            wire.Heartbeat: handler.beat,
            wire.Release: handler.release,
            wire.FetchHistory: handler.fetch,
            wire.Inventory: self._inventory,
            wire.Evicted: self._evicted,
            wire.Slots: self._slots,
        }
        shards.on_map.append(self._tell_map)

    async def serve(self, link: Link) -> None:
        """Carry one worker's link until it ends."""
        session: Session | None = None

        def on_message(message: Message) -> None:
            nonlocal session
            if session is None:
                session = self._welcome(link, message)
            elif self.sessions.is_current(session):
                self._handle(session, message)

        try:
            await link.run(on_message)
        finally:
            if session is not None:
                self._gone(session)

    def _handle(self, session: Session, message: Message) -> None:
        """Handle one message; what it trips over costs its sender this message and no other.

        Were the link closed for it, the worker would say the same again on the next one, and with
        it everything else that it holds, for ever.
        """
        handle = self._handlers.get(type(message))
        if handle is None:
            return
        try:
            handle(session, message)
        except Exception:  # see above
            self.refused_count += 1
            log.exception(
                "message of a worker refused",
                extra={
                    "worker": session.worker,
                    "kind": type(message).__name__,
                    "run_id": getattr(message, "run_id", ""),
                },
            )
            if seq := getattr(message, "seq", 0):
                session.send(wire.NotWanted(seq))

    def _welcome(self, link: Link, message: Message) -> Session | None:
        if not isinstance(message, wire.Hello) or message.version != wire.LINK_VERSION:
            link.close("expected a hello of this version of the protocol")
            return None
        session = Session(link, message, self._shards.clock.boottime())
        self.sessions.add(session)
        session.send(
            wire.Welcome(
                wire.LINK_VERSION,
                self._nodes.incarnation,
                self._nodes.node_id,
                self._shards.shard_count,
                tuple(self._shards.map.values()),
                self._nodes.entries(),
            )
        )
        log.info("worker linked", extra={"worker": session.worker, "name_": message.name})
        return session

    def _gone(self, session: Session) -> None:
        """Free the workflow tasks that the worker held.

        Started activities go on until their timeouts.
        """
        if not self.sessions.remove(session):
            return
        log.info(
            "worker unlinked", extra={"worker": session.worker, "why": session.link.close_reason}
        )
        for run_id, shard_id in session.held.items():
            term = self._shards.terms.get(shard_id)
            run = None if term is None else term.runs.get(run_id)
            if term is None or run is None or run.claimant != session.worker or not term.is_serving:
                continue
            run.claimant = ""
            decision = decide_republish_task(run.execution, term.moment())
            if decision is not None:
                term.write(run, decision)
        session.held.clear()

    # --- what a worker holds ---------------------------------------------------------------------

    def _inventory(self, session: Session, message: wire.Inventory) -> None:
        """Learn which attempts live and which runs are warm where."""
        for claim in message.claims:
            term = self._shards.terms.get(claim.shard_id)
            if term is None:
                continue
            run = term.runs.get(claim.run_id)
            if run is None:
                term.beating[claim.run_id, claim.command_id] = claim.claim_token
                continue
            activity = run.execution.activities.get(claim.command_id)
            if activity is not None and activity.claim_token == claim.claim_token:
                run.beats[claim.command_id] = Beat(
                    self._shards.now_us(), activity.heartbeat_details
                )
        for warm in message.warm:
            term = self._shards.terms.get(warm.shard_id)
            if term is not None:
                self._learn_warm(term, session, warm)

    def _learn_warm(self, term: Term, session: Session, warm: wire.WarmRun) -> None:
        run = term.runs.get(warm.run_id)
        if run is None:
            term.hints[warm.run_id] = WarmHint(session.worker, warm.token, warm.last_event_id)
        elif run.execution.is_open and warm.token in (
            run.execution.state_token,
            run.execution.task_token,
        ):
            run.warm, run.warm_event_id = session.worker, warm.last_event_id

    def _evicted(self, session: Session, message: wire.Evicted) -> None:
        term = self._shards.terms.get(message.shard_id)
        run = None if term is None else term.runs.get(message.run_id)
        if run is not None and run.warm == session.worker:
            run.warm = ""

    def _slots(self, session: Session, message: wire.Slots) -> None:
        session.workflow_free = message.workflow_free
        session.activity_free = message.activity_free
        self.on_slots()

    # --- what workers are told -------------------------------------------------------------------

    def committed(self, term: Term, decision: Decision) -> None:
        """A decision has committed: push its workflow task, stop its attempts."""
        execution = decision.execution
        if decision.push:
            run = term.runs.get(execution.run_id)
            if run is not None:
                self._push(term, run)
        if not execution.is_open:
            for holder in self.sessions:
                holder.held.pop(execution.run_id, None)
        for stopped in decision.stopped:
            session = self.sessions.get(stopped.worker)
            if session is not None:
                session.send(
                    wire.CancelActivity(
                        execution.shard_id,
                        execution.run_id,
                        stopped.command_id,
                        stopped.claim_token,
                        stopped.reason,
                    )
                )

    def _push(self, term: Term, run: Run) -> None:
        """Send the pending workflow task to the worker that keeps the run warm.

        The newest state may have moved on since the decision: then its own push follows, or its
            row.
        """
        execution = run.execution
        task = execution.workflow_task
        session = self.sessions.get(run.warm)
        if session is None or task.state != "scheduled" or not task.pushed:
            return

        def settled(error: OdinError | None) -> None:
            if error is not None or term.is_over:
                return
            upper = execution.next_event_id - 1
            events = run.events_after(run.warm_event_id, upper)
            session.send(
                wire.PushWorkflowTask(
                    header=header_of(execution),
                    number=task.number,
                    attempt=task.attempt,
                    task_token=execution.task_token,
                    time_us=max(term.now_us(), execution.last_event_us, task.last_time_us),
                    after_event_id=run.warm_event_id if events is not None else upper,
                    events=page_of(events) if events is not None else (),
                    upper_event_id=upper,
                    token=execution.state_token,
                )
            )

        if term.is_settled:
            settled(None)
        else:
            term.then(settled)

    def _tell_map(self, entries: tuple[wire.ShardEntry, ...]) -> None:
        for session in self.sessions:
            session.send(wire.ShardMap(entries))

    def tell_nodes(self) -> None:
        """The set of live engines has changed."""
        message = wire.NodeList(self._nodes.entries())
        for session in self.sessions:
            session.send(message)

    async def push_tasks(self, task_queue: str, kind: str, tasks: Sequence[wire.TaskEntry]) -> bool:
        """Hand tasks to a worker with free slots (embedded transport); False if nobody has room."""
        found = self.sessions.with_room(kind, task_queue, len(tasks))
        if found is None:
            return False
        session, _ = found
        if kind == "w":
            session.workflow_free -= len(tasks)
        else:
            session.activity_free -= len(tasks)
        try:
            async with asyncio.timeout(5.0):
                receipt = await session.link.ask(
                    lambda seq: wire.Tasks(seq, task_queue, tuple(tasks)), 5.0
                )
        except (LinkClosedError, OdinError):
            return False
        return isinstance(receipt, wire.Receipt) and receipt.taken

    def close(self) -> None:
        """End all links: the engine stops."""
        for session in self.sessions:
            session.link.close("the engine stops")
