"""The error tree: codes, reasons, and errors that come back from another process."""

from __future__ import annotations

import pytest

from odin import errors
from odin.errors import Code, OdinError, rebuild


def tree(cls: type[OdinError]) -> list[type[OdinError]]:
    return [one for child in cls.__subclasses__() for one in (child, *tree(child))]


OWN = [cls for cls in tree(OdinError) if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", OWN, ids=lambda cls: cls.__name__)
def test_an_error_comes_back_from_another_process_as_what_it_was(cls: type[OdinError]) -> None:
    error = cls("what happened")
    back = rebuild(
        error.code.value, error.reason, str(error), retry_after=1.5, details={"run_id": "r"}
    )
    assert type(back) is cls
    assert (str(back), back.reason, back.status) == ("what happened", error.reason, error.status)
    assert (back.retry_after, back.details) == (1.5, {"run_id": "r"})
    assert back.retryable == error.retryable


def test_every_class_has_a_reason_of_its_own() -> None:
    reasons = [cls.reason for cls in OWN if cls is not errors.InternalError]
    assert len(set(reasons)) == len(reasons)


def test_an_unknown_reason_falls_back_to_the_code_and_an_unknown_code_to_internal() -> None:
    known = rebuild("UNAVAILABLE", "OVEN_COLD", "wait")
    assert type(known) is errors.UnavailableError
    assert known.reason == "OVEN_COLD"
    assert known.retryable
    unknown = rebuild("TEAPOT", "", "short and stout")
    assert type(unknown) is errors.InternalError
    assert unknown.reason == "INTERNAL"


def test_a_rebuilt_error_has_the_facts_of_its_class() -> None:
    error = rebuild("UNAVAILABLE", "NOT_PUBLISHED", "no confirm")
    assert isinstance(error, errors.NotPublishedError)
    assert not error.maybe_sent
    assert errors.NotPublishedError("no answer", maybe_sent=True).maybe_sent


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_an_http_status(code: Code) -> None:
    assert 400 <= code.status < 600


def test_a_mismatch_is_422_and_retryable_errors_are_those_of_the_moment() -> None:
    assert errors.RequestMismatchError("other body").status == 422
    retryable = {cls.code for cls in OWN if cls.retryable}
    assert retryable == {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED}
