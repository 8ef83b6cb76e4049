"""The payload door: what cannot be stored and replayed exactly is refused, and named."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.payload import (
    DEPTH_MAX,
    INT_MAX,
    INT_MIN,
    PAYLOAD_BYTES_MAX,
    Payload,
    clean_text,
    decode,
    encode,
    encode_all,
)
from odin.errors import PayloadError

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@dataclasses.dataclass
class Order:
    number: int
    lines: list[Any]


class Line(msgspec.Struct):
    item: str
    price: Any


class Colour(enum.Enum):
    RED = "red"


class Broken(enum.Enum):
    NAN = math.nan


class Size(enum.IntEnum):
    BIG = 3


class Point(NamedTuple):
    x: int
    y: float


def nested(levels: int, inside: object = None) -> object:
    """Return lists in lists: `levels` of them."""
    value: object = [] if inside is None else [inside]
    for _ in range(levels - 1):
        value = [value]
    return value


def cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


@given(value=JSON_VALUES)
def test_json_values_come_back_as_they_were(value: object) -> None:
    back = decode(encode(value))
    assert back == value
    assert repr(back) == repr(value), "1, 1.0 and True, and the sign of zero, are kept apart"


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Order(1, [2, "a"]), Order),
        (Line("pen", 3), Line),
        (datetime(2026, 3, 1, 12, 30, 1, 999_999, tzinfo=UTC), datetime),
        (date(2026, 3, 1), date),
        (timedelta(days=1, microseconds=3), timedelta),
        (Decimal("1.500"), Decimal),
        (UUID(int=7), UUID),
        (b"\x00\xff", bytes),
        (Colour.RED, Colour),
        (Size.BIG, Size),
        ((1, "a"), tuple[int, str]),
        (Point(1, 2), Point),
        (OrderedDict(a=1), dict[str, int]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_typed_values_come_back_where_the_type_is_given(value: object, type_: object) -> None:
    back = decode(encode(value), type_)
    assert back == value
    if isinstance(value, Decimal):
        assert str(back) == str(value)


REFUSED = [
    (math.nan, "holds nan"),
    (-math.inf, "holds -inf"),
    ({"a": [1, (math.inf,)]}, "holds inf"),
    (Order(1, [math.nan]), "holds nan"),
    (Line("pen", math.nan), "holds nan"),
    (Point(1, math.nan), "holds nan"),
    (Broken.NAN, "holds nan"),
    ({"deep": Broken.NAN}, "holds nan"),
    ("\ud800", "cannot be encoded"),
    ({"\udfff": 1}, "cannot be encoded"),
    (INT_MAX + 1, "beyond 64 bits"),
    ([INT_MIN - 1], "beyond 64 bits"),
    ([10**5_000], ""),
    ({1: "a"}, "the key 1"),
    ({b"a": 1}, "the key b'a'"),
    ([{None: 1}], ""),
    ({"a": {1, 2}}, "holds a set"),
    (frozenset(), "holds a set"),
    (msgspec.Raw(b"NaN"), "msgspec.Raw"),
    (nested(DEPTH_MAX + 1), "nested deeper than 64"),
    (nested(DEPTH_MAX + 1, 1), "nested deeper than 64"),
    (cyclic(), "cannot be encoded"),
    (object(), "cannot be encoded"),
    (Order, "cannot be encoded"),
    (1j, "cannot be encoded"),
    ((one for one in "ab"), "cannot be encoded"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_stored_and_replayed_exactly_is_refused_and_named(
    value: object, why: str
) -> None:
    with pytest.raises(PayloadError) as refused:
        encode(value, "argument 2")
    assert why in str(refused.value)
    assert "argument 2" in str(refused.value)


@pytest.mark.parametrize("inside", [None, 1, "a", 1.5, Colour.RED])
def test_nesting_up_to_64_is_fine_whatever_is_inside(inside: object) -> None:
    levels = DEPTH_MAX - isinstance(inside, Colour)  # an enum member counts as a level of its own
    assert decode(encode(nested(levels, inside))) is not None


def test_too_large_a_value_is_refused_and_says_what_to_do() -> None:
    assert len(encode("x" * (PAYLOAD_BYTES_MAX - 2)).data) == PAYLOAD_BYTES_MAX
    with pytest.raises(PayloadError, match="pass a reference") as refused:
        encode("x" * (PAYLOAD_BYTES_MAX - 1))
    assert refused.value.reason == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize(
    ("payload", "type_"),
    [
        (Payload("pickle", b"1"), Any),
        (Payload("json", b"{"), Any),
        (Payload("json", b"[1]"), int),
        (Payload("json", b'{"number": 1}'), Order),
        (Payload("json", b"[" * 100_000), Any),
        (Payload("json", b'"\xff"'), str),
        (Payload("json", b"1"), set[object] | set[int]),
    ],
    ids=range(7),
)
def test_what_does_not_fit_is_an_error_of_its_own_and_never_another(
    payload: Payload, type_: object
) -> None:
    with pytest.raises(PayloadError):
        decode(payload, type_)


def test_positions_of_arguments_count_from_one() -> None:
    assert encode_all([1, "a"]) == (encode(1), encode("a"))
    with pytest.raises(PayloadError, match="argument 2 holds nan"):
        encode_all([1, math.nan])


@given(text=st.text(st.characters(codec=None)), limit=st.integers(1, 40))
def test_clean_text_can_be_stored_everywhere_and_keeps_its_limit(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit)
    assert len(cleaned) <= limit
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert clean_text(cleaned, limit) == cleaned


def test_clean_text_leaves_good_text_alone_and_shows_what_it_replaced() -> None:
    assert clean_text("déjà vu \U0001f600") == "déjà vu \U0001f600"
    assert clean_text("a\x00b\ud800") == "a\\x00b\\ud800"
    assert clean_text("abcdef", 4) == "abc…"
