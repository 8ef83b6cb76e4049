"""How the command line writes durations and texts, and how it reads durations."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.cli.output import clean, duration_of, local, shorten, span
from odin.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1h30m", 5_400), ("500ms", 0.5), ("2d", 172_800), ("1.5m", 90)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration_of(text, "--since") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1y", "1h 30m", "9" * 39 + "d", "9" * 50 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--since"):
        duration_of(text, "--since")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "40ms"), (1.25, "1.2s"), (75, "1m15s"), (3_700, "1h01m"), (90_000, "1d1h")],
)
def test_a_duration_is_written_in_two_figures(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_an_instant_is_local_and_says_how_far_it_is() -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert local(at, at + timedelta(minutes=2)).endswith("(2m00s ago)")
    assert local("2026-05-01T12:00:30Z", at).endswith("(in 30.0s)")
    assert local(None) == "-"


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert all(ord(one) >= 0x20 and not 0x7F <= ord(one) <= 0x9F for one in clean(text))


@given(st.text() | st.lists(st.integers()), st.integers(2, 80))
def test_a_value_is_shortened_to_its_limit(value: object, limit: int) -> None:
    assert len(shorten(value, limit)) <= limit
