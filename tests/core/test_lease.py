from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.lease import RENEWALS_KEPT, Lease, LeaseTimes, Renewal
from odin.errors import ConfigurationError

# A true history: boottime and database time run alike; the database stamps before the receipt.
OFFSET_SECONDS = 1_000_000


@st.composite
def renewals(draw: st.DrawFn) -> list[Renewal]:
    at, made = draw(st.floats(0, 1_000)), []
    for _ in range(draw(st.integers(1, 12))):
        there, back = draw(st.floats(0, 4)), draw(st.floats(0, 4))
        stamped_at = at + there
        made.append(Renewal(at, stamped_at + back, int((stamped_at + OFFSET_SECONDS) * 1e6)))
        at = stamped_at + back + draw(st.floats(0, 5))
    return made


def lease_of(history: list[Renewal]) -> Lease:
    lease = Lease()
    for renewal in history:
        lease = lease.renewed(renewal)
    return lease


@given(history=renewals(), later=st.floats(0, 100))
def test_the_cluster_time_is_never_ahead_of_the_database(
    history: list[Renewal], later: float
) -> None:
    now = history[-1].received_at + later
    estimate = lease_of(history).cluster_time_us(now)
    true = (now + OFFSET_SECONDS) * 1e6
    assert estimate <= true + 2  # rounding of floats this large, in microseconds
    fastest = min(renewal.round_trip for renewal in history[-RENEWALS_KEPT:])
    assert estimate >= true - fastest * 1e6 - 5


@given(history=renewals(), later=st.floats(0, 20))
def test_serving_ends_at_least_two_seconds_before_the_lease(
    history: list[Renewal], later: float
) -> None:
    lease, now = lease_of(history), history[-1].received_at + later
    granted_at = history[-1].database_time_us / 1e6 - OFFSET_SECONDS
    lease_ends_at = granted_at + lease.times.duration
    if lease.may_serve(now):
        assert now < lease_ends_at - 2 + 1e-3


def test_a_slow_reply_does_not_lengthen_the_trust() -> None:
    slow = Lease().renewed(Renewal(sent_at=100.0, received_at=107.9, database_time_us=0))
    assert slow.serving_until == 108.0
    assert slow.may_serve(107.99)
    assert not slow.may_serve(108.0)


def test_a_lease_that_was_never_renewed_serves_nothing() -> None:
    assert Lease().serving_until == -inf
    assert not Lease().may_serve(0.0)
    assert Lease().renew_at(5.0) == 5.0
    with pytest.raises(ValueError, match="unknown"):
        Lease().cluster_time_us(0.0)


def test_the_next_renewal_is_counted_from_the_send_of_the_last() -> None:
    lease = Lease().renewed(Renewal(sent_at=100.0, received_at=101.5, database_time_us=0))
    assert lease.renew_at(101.5) == 103.0
    assert lease.renew_at(104.0) == 104.0


def test_the_fastest_recent_renewal_tells_the_time_and_an_old_one_is_forgotten() -> None:
    quick = Renewal(0.0, 0.001, 500_000)
    slow = [Renewal(t, t + 1.0, int((t + 1.0) * 1e6)) for t in (3.0, 6.0, 9.0, 12.0, 15.0)]
    assert lease_of([quick, *slow[:4]]).cluster_time_us(13.001) == 500_000 + 13_000_000
    assert lease_of([quick, *slow]).cluster_time_us(16.0) == 16_000_000


@pytest.mark.parametrize(
    ("renew_every", "serve_for", "duration"),
    [(5.0, 8.0, 10.0), (3.0, 10.0, 10.0), (3.0, 5.0, 10.0), (0.0, 8.0, 10.0), (4.0, 8.0, 10.0)],
)
def test_spans_out_of_order_are_refused(
    renew_every: float, serve_for: float, duration: float
) -> None:
    with pytest.raises(ConfigurationError, match="serve_for"):
        LeaseTimes(renew_every, serve_for, duration)
