from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.errors import InvalidArgumentError
from odin.runtime.http import strict_json

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
)


@given(value=values, ascii_only=st.booleans())
def test_what_can_be_kept_exactly_is_read_exactly(
    value: object,
    ascii_only: bool,  # noqa: FBT001 - drawn by the property
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    read = strict_json(body)
    assert read == value
    assert json.dumps(read) == json.dumps(value)  # also the order of keys, -0.0 and 1 against 1.0


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b'[{"x":{"b":1,"c":2,"b":1}}]', "duplicate_key"),
        (b"NaN", "not_a_number"),
        (b"[Infinity]", "not_a_number"),
        (b'{"a":-Infinity}', "not_a_number"),
        (b"1e400", "number_range"),
        (b"-1e400", "number_range"),
        (b"18446744073709551616", "number_range"),
        (b"-9223372036854775809", "number_range"),
        (b"1" * 5_000, "number_range"),
        (b'"\\u0000"', "nul"),
        (b'{"a\\u0000":1}', "nul"),
        (b'"\\ud800"', "surrogate"),
        (b'["\\uDC00\\ud800"]', "surrogate"),
        (b'{"\\udfff":1}', "surrogate"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"),
        (b"[" * 200_000, "too_deep"),
        (b'"\xff"', "not_utf8"),
        (b'"\xed\xa0\x80"', "not_utf8"),
        (b'\xef\xbb\xbf"bom"', "syntax"),
        (b'"raw \x01 control"', "syntax"),
        (b'"raw \x00 nul"', "syntax"),
        (b"", "syntax"),
        (b"{} {}", "syntax"),
        (b"[1,]", "syntax"),
        (b"{'a':1}", "syntax"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused_and_named(body: bytes, fault: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        strict_json(body)
    assert refused.value.details["fault"] == fault
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("body", [b"[" * 64 + b"1" + b"]" * 64, b'{"a":' * 64 + b'"x"' + b"}" * 64])
def test_sixty_four_levels_are_not_too_deep(body: bytes) -> None:
    assert strict_json(body) == json.loads(body)


def test_brackets_and_escapes_inside_strings_do_not_count() -> None:
    for text in ("[{" * 100, "\\u0000", "\\ud800", "\U0001f600"):
        assert strict_json(json.dumps(text).encode()) == text


@given(body=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = strict_json(body)
    except InvalidArgumentError:
        return
    assert strict_json(json.dumps(value).encode()) == value
