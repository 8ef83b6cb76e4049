from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.backoff import RetryPolicySpec, delay_after, delay_after_ms, doubled
from odin.errors import InvalidArgumentError


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicySpec:
    initial = draw(st.integers(1, 10**7))
    return RetryPolicySpec(
        initial_interval_ms=initial,
        backoff_coefficient=draw(st.floats(1, 100)),
        maximum_interval_ms=draw(st.none() | st.integers(initial, 10**10)),
        maximum_attempts=draw(st.integers(0, 200)),
    )


@given(policy=policies(), attempt=st.integers(1, 100_000))
def test_delays_never_shrink_and_never_pass_the_ceiling(
    policy: RetryPolicySpec, attempt: int
) -> None:
    this, following = delay_after_ms(attempt, policy), delay_after_ms(attempt + 1, policy)
    if this is None:
        assert following is None
        return
    assert policy.initial_interval_ms <= this <= policy.ceiling_ms
    assert following is None or following >= this


@given(policy=policies())
def test_exactly_maximum_attempts_are_made(policy: RetryPolicySpec) -> None:
    limit = policy.maximum_attempts
    if limit == 0:
        assert delay_after_ms(10**6, policy) is not None
        return
    assert delay_after_ms(limit, policy) is None
    if limit > 1:
        assert delay_after_ms(limit - 1, policy) is not None


def test_the_default_policy_doubles_from_one_second_to_a_hundred() -> None:
    policy = RetryPolicySpec()
    seconds = [delay_after(attempt, policy) for attempt in range(1, 10)]
    assert seconds == [1, 2, 4, 8, 16, 32, 64, 100, 100]


def test_a_policy_of_one_attempt_never_retries() -> None:
    assert delay_after(1, RetryPolicySpec.once()) is None


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        delay_after(0, RetryPolicySpec())


def test_a_listed_error_type_is_not_retried() -> None:
    policy = RetryPolicySpec(non_retryable_error_types=("CardDeclined",))
    assert not policy.allows("CardDeclined")
    assert policy.allows("Timeout")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"initial_interval_ms": 0}, "initial_interval"),
        ({"initial_interval_ms": 2**62}, "initial_interval"),
        ({"backoff_coefficient": 0.99}, "backoff_coefficient"),
        ({"backoff_coefficient": float("nan")}, "backoff_coefficient"),
        ({"backoff_coefficient": float("inf")}, "backoff_coefficient"),
        ({"initial_interval_ms": 10, "maximum_interval_ms": 9}, "maximum_interval"),
        ({"maximum_attempts": -1}, "maximum_attempts"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        RetryPolicySpec(**wrong)  # type: ignore[arg-type]  # wrong values are the point


@given(policy=policies())
def test_a_policy_survives_the_wire(policy: RetryPolicySpec) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(policy), type=RetryPolicySpec) == policy


@given(interval=st.integers(1, 10**6), cap=st.integers(1, 10**6))
def test_a_spacing_doubles_up_to_its_cap(interval: int, cap: int) -> None:
    assert doubled(interval, cap) == min(2 * interval, cap)


@pytest.mark.parametrize(("interval", "cap"), [(0, 5), (-1, 5), (5, 0)])
def test_a_spacing_without_length_is_refused(interval: int, cap: int) -> None:
    with pytest.raises(ValueError, match="above 0"):
        doubled(interval, cap)
