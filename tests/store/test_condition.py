"""How the database has served lately: one episode, one word, whatever number of calls fail."""

from __future__ import annotations

import logging
from typing import cast

import asyncpg
import pytest

from engine.store.condition import (
    ANSWERED_SECONDS,
    NOT_CONNECTED,
    REACHED_SECONDS,
    WROTE_SECONDS,
    Condition,
    unavailable,
)
from engine.store.errors import NotConnectedError, WriteNotSentError, read_error, write_error
from odin.errors import OutcomeUnknownError, StoreFullError, StoreUnavailableError
from odin.runtime.clock import Clock


class Hand:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now = 100.0

    def boottime(self) -> float:
        return self.now


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def condition(hand: Hand, caplog: pytest.LogCaptureFixture) -> Condition:
    caplog.set_level(logging.DEBUG)
    return Condition(cast("Clock", hand))


FULL = asyncpg.DiskFullError("no space")
REFUSED = ConnectionRefusedError("nobody there")


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records]


def test_an_episode_is_said_once_when_it_begins_and_once_when_it_is_over(
    condition: Condition, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        condition.failed(FULL)
        hand.now += 1
        condition.wrote()  # what is small may fit
        condition.answered()
    assert words(caplog) == ["database fails"]
    assert condition.cause.startswith("Postgres has no room left on its disk")
    assert "so for 50 s" in condition.cause
    assert type(condition.refusal()) is StoreFullError
    hand.now += WROTE_SECONDS
    condition.wrote()
    assert words(caplog) == ["database fails", "database serves again"]
    assert condition.cause == ""
    assert condition.refusal() is None


def test_reads_alone_end_an_episode_of_writes_only_after_long(
    condition: Condition, hand: Hand
) -> None:
    condition.failed(FULL)
    hand.now += ANSWERED_SECONDS - 0.1
    condition.answered()
    assert condition.refusal() is not None
    hand.now += 0.2
    condition.answered()
    assert condition.refusal() is None


def test_a_server_that_is_gone_is_told_of_until_it_answers(
    condition: Condition, hand: Hand
) -> None:
    condition.failed(FULL)
    condition.failed(NotConnectedError(REFUSED))
    assert type(condition.refusal()) is StoreUnavailableError
    assert "ConnectionRefusedError: nobody there" in condition.cause
    hand.now += REACHED_SECONDS
    condition.answered()
    assert type(condition.refusal()) is StoreFullError


def test_an_error_about_the_call_is_no_episode(condition: Condition) -> None:
    condition.failed(asyncpg.UniqueViolationError("twice"))
    condition.failed(asyncpg.DeadlockDetectedError("a circle"))
    assert condition.refusal() is None


@pytest.mark.parametrize(
    "error",
    [FULL, asyncpg.CannotConnectNowError("in recovery"), asyncpg.TooManyConnectionsError("97")],
    ids=lambda one: type(one).__name__,
)
def test_a_group_for_which_there_was_no_connection_surely_did_not_happen(error: Exception) -> None:
    told = write_error(NotConnectedError(error), "a group")
    assert type(told) is WriteNotSentError
    assert told.retryable
    assert told.sqlstate == getattr(error, "sqlstate", "")


def test_a_connection_that_is_lost_with_a_group_on_it_leaves_its_fate_unknown() -> None:
    for error in (REFUSED, TimeoutError(), asyncpg.ConnectionDoesNotExistError("closed")):
        assert type(write_error(error, "a group")) is OutcomeUnknownError


def test_what_a_caller_is_told_holds_no_secret_and_stands_on_one_line() -> None:
    told = unavailable(NOT_CONNECTED, "tried\npostgresql://odin:hunter2@db/odin\n password=hunter2")
    assert "hunter2" not in str(told)
    assert "\n" not in str(told)
    assert "hunter2" not in str(read_error(OSError("postgresql://odin:hunter2@db/odin")))
