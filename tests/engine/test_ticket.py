"""Tickets: who is told how a group ended, and who only that it did not commit."""

from __future__ import annotations

from engine.ticket import GroupRaisedError, Ticket
from odin.errors import OdinError

ERROR = GroupRaisedError("rolled back")


def test_who_asks_for_failures_is_told_of_the_failed_shard_alone() -> None:
    ticket = Ticket()
    told: list[tuple[int, OdinError]] = []
    ticket.otherwise(1, lambda error: told.append((1, error)))
    ticket.otherwise(2, lambda error: told.append((2, error)))
    ticket.fail({1: ERROR})
    assert told == [(1, ERROR)]
    ticket.end()
    assert told == [(1, ERROR)]


def test_who_asks_for_failures_late_is_told_at_once() -> None:
    ticket = Ticket()
    ticket.fail({1: ERROR})
    told: list[OdinError] = []
    ticket.otherwise(1, told.append)
    assert told == [ERROR]
    ticket.otherwise(2, told.append)
    ticket.end()
    ticket.otherwise(2, told.append)
    assert told == [ERROR]


def test_a_shard_that_fails_after_another_is_told_of_its_own_failure() -> None:
    ticket = Ticket()
    told: list[OdinError] = []
    ticket.otherwise(2, told.append)
    ticket.fail({1: ERROR})
    assert told == []
    later = GroupRaisedError("later")
    ticket.fail({2: later})
    assert told == [later]
