# ruff: noqa: A004, N818 - users' classes and names

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from odin.core.failures import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TerminatedError,
    TimeoutError,
    TimeoutType,
    error_of,
    failure_of,
)
from odin.core.payload import Failure, Payload, encode


class DomainError(ApplicationError):
    pass


def caused(error: FailureError, cause: BaseException) -> FailureError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ApplicationError("plain"),
        ApplicationError("full", 1, "two", type="Own", non_retryable=True),
        ApplicationError("later", next_retry_delay=timedelta(seconds=1.5)),
        CancelledError("stop", "why"),
        TerminatedError("ended"),
        TimeoutError("slow", type=TimeoutType.HEARTBEAT),
        caused(ActivityError("gone", activity_type="charge"), ApplicationError("inner")),
    ],
)
def test_a_failure_comes_back_as_what_it_was(error: FailureError) -> None:
    back = error_of(failure_of(error))
    assert type(back) is type(error)
    assert (back.message, str(back)) == (error.message, str(error))
    for name in ("details", "type", "non_retryable", "next_retry_delay", "activity_type"):
        assert getattr(back, name, None) == getattr(error, name, None)
    assert type(back.cause) is type(error.cause)
    assert back.failure == failure_of(error)


def test_other_errors_become_application_failures_named_after_their_class() -> None:
    back = error_of(failure_of(ZeroDivisionError("division by zero")))
    assert isinstance(back, ApplicationError)
    assert (back.type, str(back)) == ("ZeroDivisionError", "ZeroDivisionError: division by zero")
    assert failure_of(DomainError("x")).type == "DomainError"
    assert failure_of(asyncio.CancelledError()).kind == "canceled"


def test_a_timeout_of_unknown_type_has_none() -> None:
    back = error_of(Failure("slow", "timeout", timeout_type="run"))
    assert isinstance(back, TimeoutError)
    assert back.type is None


def test_a_chain_of_causes_is_cut_where_it_is_too_long() -> None:
    error: BaseException = ValueError("deepest")
    for at in range(40):
        outer = ValueError(str(at))
        outer.__cause__ = error
        error = outer
    failure: Failure | None = failure_of(error)
    depth = 0
    while failure is not None:
        failure, depth = failure.cause, depth + 1
    assert depth == 17


def test_texts_that_no_store_could_hold_are_made_harmless() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise KeyError

    assert failure_of(Rude()).message == "Rude (its text cannot be had)"
    assert failure_of(ValueError("a\x00b\ud800")).message == "a\\x00b\\ud800"


def test_details_that_cannot_be_stored_or_read_do_not_hide_the_failure() -> None:
    failure = failure_of(ApplicationError("x", float("nan")))
    back = error_of(failure)
    assert isinstance(back, ApplicationError)
    assert "details were dropped" in back.details[0]  # type: ignore[operator] # it is a str
    strange = Payload("strange", b"x")
    back = error_of(Failure("x", details=(strange, encode(1))))
    assert isinstance(back, ApplicationError)
    assert back.details == (strange, 1)


def test_a_stack_is_written_down_unless_told_not_to() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    assert "test_failures.py" in failure_of(caught.value).stack_trace
    assert failure_of(caught.value, trace=False).stack_trace == ""
