import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Spread, edge_step_ms, latencies, percentile, spread

durations = st.lists(st.floats(0, 1e6), min_size=1)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (50, 50), (95, 95), (99, 99), (99.5, 100), (100, 100)]
)
def test_percentiles_of_one_to_a_hundred_are_themselves(percent: float, expected: float) -> None:
    assert percentile(list(range(1, 101)), percent) == expected


def test_of_few_values_a_high_percentile_is_the_largest() -> None:
    assert percentile([1.0, 2.0, 3.0], 99) == 3.0
    assert percentile([7.0], 1) == 7.0


@given(durations, st.floats(0.01, 100))
def test_a_percentile_is_a_value_that_enough_others_do_not_exceed(
    values: list[float], percent: float
) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= len(ordered) * percent / 100 - 1e-9


@given(durations)
def test_percentiles_never_fall_as_they_rise(values: list[float]) -> None:
    found = latencies(values)
    assert found.p50_ms <= found.p95_ms <= found.p99_ms <= found.max_ms


def test_latencies_are_milliseconds_whatever_the_order() -> None:
    found = latencies([0.003, 0.001, 0.002])
    assert (found.p50_ms, found.max_ms) == (2.0, 3.0)


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_a_percentage_out_of_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentage"):
        percentile([1.0], percent)


def test_nothing_has_no_percentile_and_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_a_spread_is_the_middle_and_both_ends() -> None:
    assert spread([5.0, 1.0, 2.0]) == Spread(2.0, 1.0, 5.0)
    assert spread([1.0, 3.0]) == Spread(2.0, 1.0, 3.0)


def test_steps_that_slow_down_show_at_the_edges() -> None:
    fast = [number * 1_000 for number in range(100)]
    slow = [fast[-1] + number * 3_000 for number in range(1, 101)]
    assert edge_step_ms(fast + slow) == (1.0, 3.0)


def test_a_short_run_has_no_edges() -> None:
    with pytest.raises(ValueError, match="less than two edges"):
        edge_step_ms(list(range(199)))
