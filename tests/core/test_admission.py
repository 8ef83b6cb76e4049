"""Admission: what refuses, what lets in, when to ask again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odin.core.admission import Bucket, Limit, Limits, Load, admit, is_shedding, take

LIMITS = Limits(outbox_depth_max=100, queue_delay_on_ms=5_000, queue_delay_off_ms=3_500)
DELAYS = st.integers(0, 20_000)


def test_a_quiet_node_lets_new_work_in() -> None:
    assert admit(Load(99, 4_999), LIMITS) is None


def test_the_scarcest_thing_is_named_first() -> None:
    full = admit(Load(100, 9_000), LIMITS)
    assert full is not None
    assert (full.limit, full.retry_after_ms) == (Limit.OUTBOX_DEPTH, 1_000)
    slow = admit(Load(0, 9_000), LIMITS)
    assert slow is not None
    assert (slow.limit, slow.retry_after_ms) == (Limit.QUEUE_DELAY, 4_500)


@given(depth=st.integers(0, 300), delay=DELAYS, shedding=st.booleans())
def test_a_refusal_always_says_when_to_ask_again(
    depth: int,
    delay: int,
    shedding: bool,  # noqa: FBT001 - drawn by the tool
) -> None:
    refused = admit(Load(depth, delay, shedding), LIMITS)
    assert refused is None or refused.retry_after_ms >= 1_000


def test_the_door_closes_at_one_mark_and_opens_below_a_lower_one() -> None:
    states, shedding = [], False
    for delay in (4_999, 5_000, 4_000, 3_500, 3_499, 4_999, 5_000):
        shedding = is_shedding(Load(0, delay, shedding), LIMITS)
        states.append(shedding)
    assert states == [False, True, True, True, False, False, True]


@given(delays=st.lists(st.integers(3_500, 4_999), max_size=30), start=st.booleans())
def test_between_the_marks_the_door_never_moves(
    delays: list[int],
    start: bool,  # noqa: FBT001 - drawn by the tool
) -> None:
    shedding = start
    for delay in delays:
        shedding = is_shedding(Load(0, delay, shedding), LIMITS)
    assert shedding is start


def test_an_empty_queue_always_opens_the_door() -> None:
    assert admit(Load(0, 0, is_shedding=True), LIMITS) is None


@given(
    steps=st.lists(st.floats(-1, 5), max_size=60),
    per_second=st.floats(0.1, 50),
    burst=st.floats(1, 50),
)
def test_a_bucket_gives_no_more_than_its_burst_and_its_refill(
    steps: list[float], per_second: float, burst: float
) -> None:
    bucket, now, newest, given_out = Bucket(burst, 0.0), 0.0, 0.0, 0
    for step in steps:
        now += step
        newest = max(newest, now)
        bucket, wait_ms = take(bucket, now, per_second, burst)
        given_out += wait_ms is None
        assert wait_ms is None or wait_ms > 0
        assert 0 <= bucket.tokens <= burst
    assert given_out <= burst + newest * per_second + 1e-6


@given(per_second=st.floats(0.1, 1_000), burst=st.floats(1, 50))
def test_after_the_wait_that_it_names_a_bucket_gives_a_token(
    per_second: float, burst: float
) -> None:
    empty = Bucket(0.0, 10.0)
    _, wait_ms = take(empty, 10.0, per_second, burst)
    assert wait_ms is not None
    _, again = take(empty, 10.0 + wait_ms / 1_000 + 1e-9, per_second, burst)
    assert again is None


def test_a_clock_that_goes_back_refills_no_instant_twice() -> None:
    bucket, first = take(Bucket(0.0, 10.0), 9.0, 1.0, 5.0)
    _, second = take(bucket, 10.0, 1.0, 5.0)
    assert first is not None
    assert second is not None
