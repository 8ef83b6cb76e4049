from collections import Counter

import pytest

from bench.engines import figures, parsed
from bench.options import Options
from bench.workloads import ALL, PAYLOAD, PAYLOAD_BYTES, chosen
from odin.core.payload import encode
from odin.errors import InvalidArgumentError


def test_all_workloads_are_chosen_if_none_is_named() -> None:
    assert [one.name for one in chosen([])] == ["W1", "W2", "W3", "W4", "W5"]


def test_workloads_keep_their_order_whatever_order_they_are_named_in() -> None:
    assert [one.name for one in chosen(["w4", "W1"])] == ["W1", "W4"]


def test_an_unknown_workload_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="W9"):
        chosen(["W1", "W9"])


def test_a_smaller_number_of_workflows_has_no_longer_warm_up() -> None:
    (one,) = chosen(["W1"], 20)
    assert (one.count, one.warmup_count, one.in_flight) == (20, 20, 64)
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        chosen(["W1"], 0)


def test_only_the_long_workload_shows_growth() -> None:
    assert [name for name, one in ALL.items() if one.shows_growth] == ["W5"]


def test_the_payload_is_as_long_as_it_says_where_it_is_stored() -> None:
    assert len(encode(PAYLOAD).data) == PAYLOAD_BYTES


@pytest.mark.parametrize(
    "wrong", [{"engines": 0}, {"workers": 51}, {"rounds": 0}, {"broker": "kafka"}]
)
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        Options([], **wrong)  # type: ignore[arg-type] # wrong on purpose


def test_counters_without_labels_are_read_from_the_metrics() -> None:
    text = '# HELP a b\na_total 3\nb{route="x"} 4\nc_seconds 0.5\n'
    assert parsed(text) == {"a_total": 3.0, "c_seconds": 0.5}


def test_messages_that_no_engine_counts_are_not_measured() -> None:
    before = Counter({"odin_decisions_total": 10})
    after = Counter({"odin_decisions_total": 27})
    assert figures(before, after).decisions == 17
    assert figures(before, after).messages is None
    assert figures(before, after + Counter({"odin_outbox_messages_total": 4})).messages == 4
