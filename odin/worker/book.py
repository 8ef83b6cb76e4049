"""The book of tasks: from the message that names a task to the attempt that runs.

    message ─▶ waiting ─▶ claimed ─▶ running ─▶ result unanswered ─▶ gone
                  │          │ └──(late)──▶ parked, and asked on
                  │          └──(not wanted)──▶ gone
                  └──(too many)──▶ released

A message is acknowledged once each of its ids is claimed, not wanted, released or parked, so that
no delivery is held for the length of an activity, and a dead owner's tasks cannot fill the prefetch
windows of all workers. Activities are claimed only into free slots.

Pure bookkeeping: what is to be done is gathered in `Effects`, and done by the worker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odin.core.tasks import ACTIVITY
from odin.core.wire import HeldClaim, TaskEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

UNCLAIMED_PER_SLOT: Final = 2
PARKED_MAX: Final = 10_000


class _Batch:
    """A message of which not every id is settled."""

    __slots__ = ("delivery", "open")

    def __init__(self, delivery: object, count: int) -> None:
        self.delivery = delivery
        self.open = count


_Waiting: TypeAlias = tuple[TaskEntry, _Batch | None, int]


class Claim:
    """A task that this worker asks for.

    `token` is the claim token of an activity, else ""; `key` tells the task from all others.
    """

    __slots__ = ("batch", "entry", "key", "parked", "token")

    def __init__(self, entry: TaskEntry, token: str, batch: _Batch | None) -> None:
        self.entry = entry
        self.key = key_of(entry)
        self.token = token
        self.batch = batch
        self.parked = False


def key_of(entry: TaskEntry) -> tuple[Any, ...]:
    """Return what tells a task from all others; workflow tasks do not differ by attempt."""
    if entry.kind == ACTIVITY:
        return (ACTIVITY, entry.run_id, entry.number, entry.attempt)
    return (entry.kind, entry.run_id, entry.number)


class Effects:
    """What the worker is to do now, in this order."""

    __slots__ = ("acks", "claims", "releases", "starts", "withdrawals")

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.starts: list[tuple[Claim, Any]] = []
        self.withdrawals: list[Claim] = []
        self.releases: list[TaskEntry] = []
        self.acks: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self.claims or self.starts or self.withdrawals or self.releases or self.acks)


class TaskBook:
    """All tasks of one worker.

    Args:
        activity_slots: How many attempts run at once.
        workflow_slots: How many claims for workflow tasks are under way at once.
        make_token: Returns a new claim token.
        parked_max: How many tasks may be parked; the oldest are forgotten beyond that (their owner
            publishes them again).
    """

    def __init__(
        self,
        activity_slots: int,
        workflow_slots: int,
        make_token: Callable[[], str],
        parked_max: int = PARKED_MAX,
    ) -> None:
        self._slots = {True: activity_slots, False: workflow_slots}
        self._make_token = make_token
        self._parked_max = parked_max
        self._effects = Effects()
        # Workflow tasks are claimed before activities: they are short, and bring more of these.
        self._waiting: dict[bool, deque[_Waiting]] = {False: deque(), True: deque()}
        self._round = 0
        self._known: set[tuple[Any, ...]] = set()
        self._claims: dict[tuple[Any, ...], Claim] = {}
        self._in_flight = {True: 0, False: 0}
        self._parked: dict[tuple[Any, ...], TaskEntry] = {}
        self._parked_claims = 0
        self._ready: deque[tuple[Claim, Any]] = deque()
        self._running: set[str] = set()
        self._held: dict[str, HeldClaim] = {}
        self._stopped = False

    # What is so.

    @property
    def running(self) -> int:
        """Attempts that run now."""
        return len(self._running)

    @property
    def activity_free(self) -> int:
        """Slots that neither run an attempt nor have a claim under way."""
        used = len(self._running) + len(self._ready) + self._in_flight[True]
        return max(0, self._slots[True] - used)

    @property
    def workflow_free(self) -> int:
        """Claims for workflow tasks that may still be made."""
        return max(0, self._slots[False] - self._in_flight[False])

    @property
    def parked(self) -> int:
        """Tasks whose message is acknowledged and whose owner has not answered."""
        return len(self._parked) + self._parked_claims

    @property
    def unclaimed(self) -> int:
        """Activities in hand that are not asked for yet."""
        return len(self._waiting[True])

    def room(self, kind: str) -> int:
        """Return how many more tasks of this kind can be taken without giving any back."""
        activity = kind == ACTIVITY
        free = self.activity_free if activity else self.workflow_free
        limit = UNCLAIMED_PER_SLOT * self._slots[activity]
        return 0 if self._stopped else free + max(0, limit - len(self._waiting[activity]))

    def held(self, shard_ids: set[int] | None = None) -> list[HeldClaim]:
        """Return the attempts that run or whose result is unanswered, of these shards or of all."""
        held = self._held.values()
        return [one for one in held if shard_ids is None or one.shard_id in shard_ids]

    def drain(self) -> Effects:
        """Return what is to be done, and begin anew."""
        effects = self._effects
        if effects:
            self._effects = Effects()
        return effects

    # What happens.

    def take(self, delivery: object | None, entries: Sequence[TaskEntry]) -> None:
        """A message has arrived (or, with None, tasks that no message stands for any more)."""
        batch = None if delivery is None else _Batch(delivery, len(entries))
        for entry in entries:
            self._admit(entry, batch)
        self._pump()

    def _admit(self, entry: TaskEntry, batch: _Batch | None) -> None:
        key = key_of(entry)
        activity = entry.kind == ACTIVITY
        waiting = self._waiting[activity]
        self._parked.pop(key, None)
        if key in self._known:
            self._settle(batch)
        elif self._stopped or len(waiting) >= UNCLAIMED_PER_SLOT * self._slots[activity] + (
            self.activity_free if activity else self.workflow_free
        ):
            self._effects.releases.append(entry)
            self._settle(batch)
        else:
            self._known.add(key)
            waiting.append((entry, batch, self._round))

    def _pump(self) -> None:
        """Claim as much as there are free slots for."""
        for activity, waiting in self._waiting.items():
            if not waiting:
                continue
            free = self.activity_free if activity else self.workflow_free
            while waiting and free > 0 and not self._stopped:
                free -= 1
                entry, batch, _ = waiting.popleft()
                claim = Claim(entry, self._make_token() if activity else "", batch)
                self._claims[claim.key] = claim
                self._in_flight[activity] += 1
                self._effects.claims.append(claim)

    def granted(self, claim: Claim, grant: object) -> None:
        """The owner says that the task is ours. `grant` is handed to the start."""
        if not self._close(claim):
            return
        entry = claim.entry
        if entry.kind != ACTIVITY:
            self._effects.starts.append((claim, grant))
        else:
            self._known.add(claim.key)
            self._held[claim.token] = HeldClaim(
                entry.shard_id, entry.run_id, entry.number, entry.attempt, claim.token
            )
            if len(self._running) < self._slots[True]:
                self._running.add(claim.token)
                self._effects.starts.append((claim, grant))
            else:
                self._ready.append((claim, grant))
        self._pump()

    def not_wanted(self, claim: Claim) -> None:
        """The owner does not want the task done by us."""
        if self._close(claim):
            self._pump()

    def late(self, claim: Claim, *, sent: bool) -> None:
        """The owner has not answered in time: let the message go and keep the task.

        Args:
            claim: The claim.
            sent: Whether it has been sent at all. If so it goes on being asked, since the owner may
                hold it granted; if not, only the ids are kept.
        """
        if self._claims.get(claim.key) is not claim or claim.parked:
            return
        activity = claim.entry.kind == ACTIVITY
        self._in_flight[activity] -= 1
        claim.parked = True
        self._settle(claim.batch)
        claim.batch = None
        if sent:
            self._parked_claims += 1
            self._bound_parked()
        else:
            self._forget(claim)
            self._park(claim.entry)
        self._pump()

    def _park(self, entry: TaskEntry) -> None:
        self._parked[key_of(entry)] = entry
        self._bound_parked()

    def _bound_parked(self) -> None:
        while self.parked > self._parked_max:
            if self._parked:
                del self._parked[next(iter(self._parked))]
            else:
                self._forget(next(one for one in self._claims.values() if one.parked))
                self._parked_claims -= 1

    def _forget(self, claim: Claim) -> None:
        del self._claims[claim.key]
        self._known.discard(claim.key)
        self._effects.withdrawals.append(claim)

    def owner_back(self, shard_ids: Iterable[int]) -> None:
        """These shards have an owner that can be asked: try what was parked of them."""
        if not self._parked:
            return
        shards = set(shard_ids)
        back = [entry for entry in self._parked.values() if entry.shard_id in shards]
        for entry in back:
            del self._parked[key_of(entry)]
        self.take(None, back)

    def finished(self, token: str) -> None:
        """The attempt no longer runs; its result is still to be answered."""
        self._running.discard(token)
        while self._ready and len(self._running) < self._slots[True]:
            claim, grant = self._ready.popleft()
            self._running.add(claim.token)
            self._effects.starts.append((claim, grant))
        self._pump()

    def answered(self, token: str) -> None:
        """The attempt's result has been answered, or nobody waits for it."""
        held = self._held.pop(token, None)
        if held is not None:
            self._known.discard((ACTIVITY, held.run_id, held.command_id, held.attempt))

    def drop_ready(self, token: str) -> bool:
        """Give up an attempt that is granted and has not begun. Returns whether it was so."""
        for at, (claim, _) in enumerate(self._ready):
            if claim.token == token:
                del self._ready[at]
                self.answered(token)
                self._pump()
                return True
        return False

    def give_back(self) -> None:
        """Release the activities that have waited since the call before this one.

        Long activities must not keep others, and the messages that name them, from workers that
        have slots free.
        """
        waiting = self._waiting[True]
        while waiting and waiting[0][2] < self._round:
            self._give_back(waiting.popleft())
        self._round += 1

    def _give_back(self, waiting: _Waiting) -> None:
        entry, batch, _ = waiting
        self._known.discard(key_of(entry))
        self._effects.releases.append(entry)
        self._settle(batch)

    def stop(self) -> None:
        """Claim nothing more, and give back what is not claimed."""
        self._stopped = True
        for waiting in self._waiting.values():
            while waiting:
                self._give_back(waiting.popleft())
        self._effects.releases.extend(self._parked.values())
        self._parked.clear()

    def _close(self, claim: Claim) -> bool:
        """Take the claim off the list; False if it is not there."""
        if self._claims.get(claim.key) is not claim:
            return False
        del self._claims[claim.key]
        if claim.parked:
            self._parked_claims -= 1
        else:
            self._in_flight[claim.entry.kind == ACTIVITY] -= 1
        self._known.discard(claim.key)
        self._settle(claim.batch)
        claim.batch = None
        return True

    def _settle(self, batch: _Batch | None) -> None:
        if batch is not None:
            batch.open -= 1
            if batch.open == 0:
                self._effects.acks.append(batch.delivery)
