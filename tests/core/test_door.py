"""What may come in: bounds of values, and what becomes of what exceeds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core import requests
from odin.core.door import (
    CAUSES_MAX,
    DETAILS_BYTES_MAX,
    INPUT_BYTES_MAX,
    KEPT_CAUSES_MAX,
    check_request,
    fit_failure,
    fit_outcome,
    kept_failure,
    size_of,
    why_too_large,
)
from odin.core.payload import MESSAGE_CHARS_MAX, PAYLOAD_BYTES_MAX, Failure, Payload, encode
from odin.core.wire import ActivityOutcome
from odin.errors import InvalidArgumentError


def value(size: int) -> Payload:
    return Payload("json", b"1" * size)


def length(failure: Failure | None) -> int:
    return 0 if failure is None else 1 + length(failure.cause)


def chain(count: int, details: tuple[Payload, ...] = ()) -> Failure:
    failure = Failure("root", details=details)
    for _ in range(count):
        failure = Failure("m\0" * 10_000, details=details, stack_trace="s" * 9_000, cause=failure)
    return failure


def test_a_value_a_sum_and_an_encoding_have_bounds() -> None:
    assert why_too_large([value(PAYLOAD_BYTES_MAX)], "value") is None
    assert "value 2" in str(why_too_large([value(1), value(PAYLOAD_BYTES_MAX + 1)], "value"))
    assert why_too_large([value(200_000)] * 5, "value") is None
    assert str(INPUT_BYTES_MAX) in str(why_too_large([value(200_000)] * 6, "value"))
    assert why_too_large([Payload("x" * 65, b"")], "value") is not None


def test_a_failure_is_cut_and_clean_all_the_way_down() -> None:
    found = fit_failure(chain(100, (value(200_000), value(200_000))))
    assert length(found) == CAUSES_MAX + 1
    at: Failure | None = found
    while at is not None:
        assert len(at.message) <= MESSAGE_CHARS_MAX
        assert "\0" not in at.message
        assert size_of(at.details) <= DETAILS_BYTES_MAX
        at = at.cause


def test_the_row_keeps_little_of_a_failure_that_is_tried_again() -> None:
    small, large = (encode("at 7"),), (value(5_000),)
    assert kept_failure(chain(0, small)).details == small
    found = kept_failure(chain(50, large))
    assert (found.details, length(found)) == ((), KEPT_CAUSES_MAX + 1)
    assert len(found.stack_trace) <= 2_048


@given(how=st.text(max_size=12))
def test_an_end_of_no_known_kind_is_a_failure(how: str) -> None:
    found = fit_outcome(ActivityOutcome(how))
    assert found.how in ("completed", "failed", "canceled")
    if how not in ("completed", "failed", "canceled"):
        assert found.failure is not None
        assert found.failure.non_retryable


def test_a_result_too_large_is_a_failure_for_good_that_says_why() -> None:
    fine = ActivityOutcome("completed", value(10))
    assert fit_outcome(fine) is fine
    found = fit_outcome(ActivityOutcome("completed", value(PAYLOAD_BYTES_MAX + 1)))
    assert found.failure is not None
    assert found.failure.type == "PayloadTooLarge"


GOOD = requests.StartWorkflow(workflow_id="a", request_id="r", workflow_type="t")


def test_a_sound_request_passes() -> None:
    check_request(GOOD)
    check_request(requests.SignalWorkflow(workflow_id="a", request_id="r", name="go"))
    check_request(requests.WaitWorkflow(workflow_id="a"))
    check_request(requests.TerminateWorkflow(workflow_id="a", request_id="r", reason="because"))


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": ""},
        {"run_id": "x"},
        {"task_queue": "a b"},
        {"origin": "\0"},
        {"signal_name": "\n"},
        {"input": (value(200_000),) * 6},
        {"memo": {"a b": value(1)}},
        {"id_reuse_policy": "never"},
        {"task_timeout_ms": 0},
        {"start_delay_ms": -1},
        {"execution_timeout_ms": 2**62},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_start_with_one_fault_is_refused(fields: dict[str, object]) -> None:
    base = {"workflow_id": "a", "request_id": "r", "workflow_type": "t"}
    with pytest.raises(InvalidArgumentError):
        check_request(requests.StartWorkflow(**{**base, **fields}))  # type: ignore[arg-type] # of each field its own
