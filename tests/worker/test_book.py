"""The laws of the book of tasks, held against any order of happenings."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odin.core.wire import TaskEntry
from odin.worker.book import UNCLAIMED_PER_SLOT, Claim, Effects, TaskBook, key_of

SLOTS = 3
PARKED_MAX = 4


def entry(kind: str, number: int, shard_id: int = 0) -> TaskEntry:
    return TaskEntry(kind, shard_id, 1, f"run-{number % 5}", number, 1)


class BookMachine(RuleBasedStateMachine):
    """Feeds a book with messages and answers, and keeps accounts of its own."""

    def __init__(self) -> None:
        super().__init__()
        tokens = itertools.count()
        self.book = TaskBook(SLOTS, SLOTS, lambda: f"t{next(tokens)}", PARKED_MAX)
        self.deliveries = itertools.count()
        self.unacked: set[int] = set()
        self.claims: list[Claim] = []
        self.parked: set[int] = set()
        self.running: set[str] = set()
        self.ready: set[str] = set()
        self.unanswered: set[str] = set()
        self.stopped = False

    def settle(self) -> None:
        effects = self.book.drain()
        for claim in effects.claims:
            assert claim.key not in {one.key for one in self.claims}
            assert not self.stopped
            self.claims.append(claim)
        for claim, _ in effects.starts:
            if claim.entry.kind == "a":
                self.ready.discard(claim.token)
                self.running.add(claim.token)
        for claim in effects.withdrawals:
            self.claims.remove(claim)
        for delivery in effects.acks:
            self.unacked.remove(delivery)  # never twice
        if any(one.entry.kind == "a" for one in effects.claims):
            live = [one for one in self.claims if one.entry.kind == "a" and not one.parked]
            assert len(live) + len(self.running) + len(self.ready) <= SLOTS

    @rule(kind=st.sampled_from("aw"), numbers=st.lists(st.integers(0, 30), min_size=1, max_size=8))
    def message(self, kind: str, numbers: list[int]) -> None:
        delivery = next(self.deliveries)
        self.unacked.add(delivery)
        self.book.take(delivery, [entry(kind, number, number % 3) for number in numbers])
        self.settle()

    def some(self, data: st.DataObject) -> Claim:
        return self.claims[data.draw(st.integers(0, len(self.claims) - 1))]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        claim = self.some(data)
        self.claims.remove(claim)
        if claim.entry.kind == "a":
            self.ready.add(claim.token)
            self.unanswered.add(claim.token)
        self.book.granted(claim, "grant")
        self.settle()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        claim = self.some(data)
        self.claims.remove(claim)
        self.book.not_wanted(claim)
        self.settle()

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), sent=st.booleans())
    def be_late(self, data: st.DataObject, *, sent: bool) -> None:
        claim = self.some(data)
        if claim.parked:
            return
        self.book.late(claim, sent=sent)
        self.settle()

    @rule(shard_id=st.integers(0, 2))
    def owner_back(self, shard_id: int) -> None:
        self.book.owner_back([shard_id])
        self.settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(token)
        self.book.finished(token)
        self.settle()

    @precondition(lambda self: self.unanswered - self.running - self.ready)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.unanswered - self.running - self.ready)))
        self.unanswered.remove(token)
        self.book.answered(token)
        self.settle()

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.ready)))
        assert self.book.drop_ready(token)
        self.ready.remove(token)
        self.unanswered.remove(token)
        self.settle()

    @rule()
    def give_back(self) -> None:
        self.book.give_back()
        self.settle()

    @precondition(lambda self: not self.stopped)
    @rule(dice=st.integers(0, 9))
    def stop(self, dice: int) -> None:
        if dice:
            return  # rarely: most of a book's life is before it
        self.stopped = True
        self.book.stop()
        self.settle()

    @invariant()
    def no_more_attempts_run_than_there_are_slots(self) -> None:
        assert len(self.running) == self.book.running <= SLOTS

    @invariant()
    def what_is_unclaimed_and_parked_is_bounded(self) -> None:
        assert self.book.unclaimed <= (UNCLAIMED_PER_SLOT + 1) * SLOTS
        assert self.book.parked <= PARKED_MAX

    @invariant()
    def the_inventory_is_what_runs_or_is_unanswered(self) -> None:
        assert {one.claim_token for one in self.book.held()} == self.unanswered

    @invariant()
    def a_message_is_kept_only_for_what_is_waiting_or_asked_in_time(self) -> None:
        open_claims = [one for one in self.claims if not one.parked]
        if not open_claims and not self.book.unclaimed:
            assert not self.unacked

    @invariant()
    def slots_that_are_free_do_not_wait_while_work_is_there(self) -> None:
        if not self.stopped:
            assert not (self.book.activity_free and self.book.unclaimed)


TestBook = BookMachine.TestCase
TestBook.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def taken(book: TaskBook, *entries: TaskEntry) -> Effects:
    book.take("message", entries)
    return book.drain()


def test_a_task_named_twice_is_claimed_once_and_both_messages_are_acknowledged() -> None:
    book = TaskBook(2, 2, lambda: "token")
    (claim,) = taken(book, entry("a", 1)).claims
    again = taken(book, entry("a", 1))
    assert (again.claims, again.acks) == ([], ["message"])
    book.granted(claim, None)
    assert book.drain().acks == ["message"]


def test_the_next_attempt_of_an_activity_is_another_task() -> None:
    book = TaskBook(2, 2, lambda: "token")
    first = entry("a", 1)
    second = TaskEntry("a", 0, 1, first.run_id, 1, 2)
    assert key_of(first) != key_of(second)
    assert len(taken(book, first, second).claims) == 2


def test_a_parked_claim_frees_its_slot_and_a_late_grant_waits_for_one() -> None:
    tokens = itertools.count()
    book = TaskBook(1, 1, lambda: f"t{next(tokens)}")
    (late,) = taken(book, entry("a", 1), entry("a", 2)).claims
    book.late(late, sent=True)
    (other,) = book.drain().claims
    book.granted(other, "second")
    book.granted(late, "first")
    assert [grant for _, grant in book.drain().starts] == ["second"]
    book.finished(other.token)
    assert [grant for _, grant in book.drain().starts] == ["first"]


def test_an_activity_that_waits_for_long_is_given_back_with_its_message() -> None:
    tokens = itertools.count()
    book = TaskBook(1, 1, lambda: f"t{next(tokens)}")
    (claim,) = taken(book, entry("a", 1), entry("a", 2)).claims
    book.granted(claim, "grant")
    book.give_back()
    assert not book.drain().releases
    book.give_back()
    effects = book.drain()
    assert [one.number for one in effects.releases] == [2]
    assert effects.acks == ["message"]
