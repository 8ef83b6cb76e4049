"""The shard writer: one connection and its gathering group.

While one transaction is in flight the next group gathers; a group holds decisions of any of the
node's shards, and a shard is always written by the same lane. Decisions may build on decisions that
have not committed; nothing leaves the process before its group has.

A write ends in one of four ways:

    committed ──▶ what depended on it leaves: answers, pushes, rows to the publisher
    refused   ──▶ per shard: only these terms are over, and their part of what gathers
    raised    ──▶ treated as unknown; then the requests behind it are decided anew, each in a group
                  of its own. If the server takes nothing now (its disk is full, it is gone), they
                  are told so before the bump, which may take as long
    unknown   ──▶ the range of every shard of the group is bumped FIRST, then anything is read: the
                  bump is what makes a statement that is still on its way harmless. New terms,
                  nothing of the old ones is used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from odin.core.decide import Decision, OutboxTask
from odin.core.execution import Execution
from odin.errors import OdinError, StoreUnavailableError

from .store.condition import NOT_CONNECTED, unavailable
from .store.errors import WriteRaisedError
from .store.group import (
    Committed,
    EventWrite,
    Group,
    OutboxDelay,
    OutboxInsert,
    RequestWrite,
)
from .ticket import GroupRaisedError, GroupUnknownError, ShardLostError, Ticket

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
GROUP_DECISIONS_MAX = 500
BUMP_PAUSE_SECONDS = 0.2


class CommitsGroups(Protocol):
    """The store as a lane sees it."""

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        """Write the group on this lane's connection.

        WriteRaisedError: rolled back; OutcomeUnknownError: nobody knows.
        """
        ...

    async def bump(self, incarnation: str, terms: Mapping[int, int]) -> dict[int, int]:
        """Give each shard that is still ours a new range; return shard to new range."""
        ...


class LaneEvents(Protocol):
    """What the lane tells the rest of the engine."""

    def outbox_written(self, shard_id: int, outbox_id: int, task: OutboxTask) -> None:
        """A task has committed under this outbox id: publish it."""
        ...

    def terms_lost(self, terms: Mapping[int, int], errors: Mapping[int, OdinError]) -> None:
        """These terms (shard to range) are over, each for its reason."""
        ...

    def shards_bumped(self, ranges: Mapping[int, int]) -> None:
        """These shards are ours under a new range: new terms begin."""
        ...


class _Pending:
    """A group that gathers, with what happens once it has committed."""

    __slots__ = ("after", "decisions", "group", "is_closed", "tasks", "ticket")

    def __init__(self, incarnation: str) -> None:
        self.group = Group(incarnation)
        self.ticket = Ticket()
        self.tasks: list[OutboxTask] = []
        self.after: list[tuple[int, Callable[[], None]]] = []
        self.decisions = 0
        self.is_closed = False


class Lane:
    """Gathers decisions into groups and commits them one after another."""

    def __init__(
        self, store: CommitsGroups, events: LaneEvents, incarnation: str, number: int = 0
    ) -> None:
        self._store = store
        self._number = number
        self._events = events
        self._incarnation = incarnation
        self._queue: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._in_flight: _Pending | None = None
        self._stop = asyncio.Event()
        self._ends_badly = False
        self._stuck: StoreUnavailableError | None = None
        self.committed_count = 0
        self.decision_count = 0

    def add(
        self,
        shard_id: int,
        range_id: int,
        decision: Decision,
        *,
        alone: bool = False,
        after: Callable[[], None] | None = None,
    ) -> Ticket:
        """Put `decision` and what comes with it into a group.

        Args:
            shard_id: The shard of the decision and of all that comes with it.
            range_id: The range of the term that decided.
            decision: What to write.
            alone: Give it a group of its own.
            after: Called once the group has committed, before its waiters learn of it.
        """
        pending = self._gathering(shard_id, alone=alone)
        pending.group.terms[shard_id] = range_id
        pending.decisions += 1
        self._write(pending, decision)
        for more in decision.also:
            self._write(pending, more)
        if after is not None:
            pending.after.append((shard_id, after))
        pending.is_closed = alone
        self._wake.set()
        return pending.ticket

    def delete_outbox(self, shard_id: int, range_id: int, outbox_ids: list[int]) -> None:
        """Delete confirmed outbox rows with the group that gathers."""
        pending = self._gathering(shard_id)
        pending.group.terms[shard_id] = range_id
        pending.group.outbox_deletes.extend((shard_id, outbox_id) for outbox_id in outbox_ids)

    def delay_outbox(self, range_id: int, delay: OutboxDelay) -> None:
        """Record that a row was not confirmed, with the group that gathers."""
        pending = self._gathering(delay.shard_id)
        pending.group.terms[delay.shard_id] = range_id
        pending.group.outbox_delays.append(delay)

    def flush(self) -> None:
        """Commit what has gathered, if it is only bookkeeping too."""
        if self._queue:
            self._wake.set()

    def drop(self, terms: Mapping[int, int], errors: Mapping[int, OdinError]) -> None:
        """Take the parts of these terms (shard to range) out of everything that gathers."""
        for pending in self._queue:
            touched = {
                shard: error
                for shard, error in errors.items()
                if pending.group.terms.get(shard) == terms[shard]
            }
            if touched:
                _remove(pending, touched.keys())
                pending.ticket.fail(touched)

    async def run(self, stop: asyncio.Event) -> None:
        """Commit groups until told to stop and nothing gathers."""
        self._stop = stop
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop), name="lane stop")
            while not (stop.is_set() and not self._queue):
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._commit(self._queue.popleft())

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _gathering(self, shard_id: int, *, alone: bool = False) -> _Pending:
        """Return the group that takes what the shard decides now.

        Never one of which an earlier term of the shard was taken out: its ticket says so of the
        shard for good, whatever commits with it.
        """
        if self._queue and not alone:
            last = self._queue[-1]
            is_full = last.is_closed or last.decisions >= GROUP_DECISIONS_MAX
            if not is_full and last.ticket.error(shard_id) is None:
                return last
        pending = _Pending(self._incarnation)
        self._queue.append(pending)
        return pending

    def _write(self, pending: _Pending, decision: Decision) -> None:
        group = pending.group
        execution: Execution = decision.execution
        run_id, shard_id = execution.run_id, execution.shard_id
        if decision.is_new or run_id in group.inserts:
            group.inserts[run_id] = execution
        else:
            group.updates[run_id] = execution
        for event in decision.events:
            group.events.append(EventWrite(shard_id, run_id, event))
        for task in decision.tasks:
            group.outbox.append(OutboxInsert(shard_id, task.destination, _encode(task.entry)))
            pending.tasks.append(task)
        known = decision.acknowledged
        if known is not None:
            group.requests.append(
                RequestWrite(
                    shard_id,
                    execution.namespace,
                    execution.workflow_id,
                    known.request_id,
                    known.kind,
                    known.run_id,
                    known.event_id,
                    known.body_hash,
                )
            )

    async def _commit(self, pending: _Pending) -> None:
        if not pending.group.terms:
            pending.ticket.end()
            return
        self._in_flight = pending
        try:
            committed = await self._store.commit(pending.group, lane=self._number)
        except WriteRaisedError as error:
            raised = GroupRaisedError(
                str(error), is_passing=error.retryable, sqlstate=error.sqlstate
            )
            await self._recover(pending, raised)
        except OdinError as error:
            await self._recover(pending, GroupUnknownError(str(error)))
        else:
            self._finish(pending, committed)
        finally:
            self._in_flight = None

    def _finish(self, pending: _Pending, committed: Committed) -> None:
        self._ends_badly = False
        self.committed_count += 1
        self.decision_count += pending.decisions
        lost: dict[int, OdinError] = {
            shard: ShardLostError(f"shard {shard}: the write was refused, another node owns it")
            for shard in committed.refused
        }
        if lost:
            log.warning("write refused", extra={"shards": sorted(lost)})
            pending.ticket.fail(lost)
            self.drop(pending.group.terms, lost)
            self._events.terms_lost(pending.group.terms, lost)
        for outbox_id, task in zip(committed.outbox_ids, pending.tasks, strict=True):
            if outbox_id:
                self._events.outbox_written(task.entry.shard_id, outbox_id, task)
        for shard_id, after in pending.after:
            if shard_id not in lost:
                _leave(after)
        pending.ticket.end()

    async def _recover(self, pending: _Pending, error: OdinError) -> None:
        """A group raised or is in doubt: new ranges first, then its waiters learn of it.

        Unless the server takes nothing now: nothing of the group can land, its terms are over, and
        new ranges may be long in coming.
        """
        terms = dict(pending.group.terms)
        errors: dict[int, OdinError] = dict.fromkeys(terms, error)
        self._end_terms(terms, error)
        if _is_of_server(error):
            pending.ticket.fail(errors)
        await self._renew_terms(terms)
        pending.ticket.fail(errors)
        pending.ticket.end()

    async def doubt(self, terms: Mapping[int, int], error: OdinError) -> None:
        """Bump these terms, then let new ones begin; only then does anybody read.

        Args:
            terms: Shard to the range under which something was written that may still land.
            error: What befell the write.
        """
        self._end_terms(terms, error)
        await self._renew_terms(terms)

    def check(self) -> None:
        """Raise if what is decided now could not be written: the lane waits for new ranges in vain.

        Raises:
            StoreUnavailableError: Why; nothing was changed.
        """
        if self._stuck is not None:
            raise self._stuck

    def _end_terms(self, terms: Mapping[int, int], error: OdinError) -> None:
        log.log(
            logging.DEBUG if self._ends_badly else logging.WARNING,
            "write did not end well, taking new ranges",
            extra={"reason": error.reason, "detail": str(error), "shards": sorted(terms)},
        )
        self._ends_badly = True
        doubt: dict[int, OdinError] = {
            shard: GroupUnknownError(f"shard {shard}: an earlier write is in doubt")
            for shard in terms
        }
        if _is_of_server(error):  # what gathers was never sent
            self.drop(terms, dict.fromkeys(terms, error))
        self.drop(terms, doubt)
        self._events.terms_lost(terms, doubt)

    async def _renew_terms(self, terms: Mapping[int, int]) -> None:
        ranges = await self._bump(terms)
        self._events.shards_bumped(ranges)

    async def _bump(self, terms: Mapping[int, int]) -> dict[int, int]:
        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    return await self._store.bump(self._incarnation, terms)
                except OdinError as error:
                    failures += 1
                    log.log(
                        logging.DEBUG if failures > 1 else logging.WARNING,
                        "bump failed, trying again",
                        extra={"detail": str(error)},
                    )
                    if failures > 1:  # not by a mishap of one connection
                        terms = {**terms, **self._give_up(error)}
                await asyncio.sleep(BUMP_PAUSE_SECONDS)
        finally:
            self._stuck = None
        return {}

    def _give_up(self, error: OdinError) -> dict[int, int]:
        """No new ranges to be had: refuse what gathers, and what comes; return the terms of it.

        Nothing of it was sent. It would wait behind the bump for longer than whoever asked for it.
        """
        sqlstate = getattr(error, "sqlstate", NOT_CONNECTED)
        self._stuck = unavailable(sqlstate, str(error))
        ended: dict[int, int] = {}
        for pending in list(self._queue):
            terms = dict(pending.group.terms)
            raised = GroupRaisedError(str(error), is_passing=True, sqlstate=sqlstate)
            if terms and pending.decisions:
                self._end_terms(terms, raised)
                ended.update(terms)
        return ended


def _is_of_server(error: OdinError) -> bool:
    return isinstance(error, GroupRaisedError) and error.is_of_server


def _leave(after: Callable[[], None]) -> None:
    try:
        after()
    except Exception:  # an answer that cannot be sent must not end the lane; it will be asked again
        log.exception("what follows a commit could not be done")


def _remove(pending: _Pending, shards: object) -> None:
    """Take everything of these shards out of a group that has not been sent."""
    gone = set(shards)  # type: ignore[call-overload] # any iterable of shard ids
    group = pending.group
    group.terms = {shard: range_id for shard, range_id in group.terms.items() if shard not in gone}
    group.inserts = {run: one for run, one in group.inserts.items() if one.shard_id not in gone}
    group.updates = {run: one for run, one in group.updates.items() if one.shard_id not in gone}
    group.events = [one for one in group.events if one.shard_id not in gone]
    group.outbox = [one for one in group.outbox if one.shard_id not in gone]
    pending.tasks = [task for task in pending.tasks if task.entry.shard_id not in gone]
    group.outbox_deletes = [one for one in group.outbox_deletes if one[0] not in gone]
    group.outbox_delays = [one for one in group.outbox_delays if one.shard_id not in gone]
    group.requests = [one for one in group.requests if one.shard_id not in gone]
    pending.after = [one for one in pending.after if one[0] not in gone]
