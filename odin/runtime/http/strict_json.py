"""JSON at the HTTP door: what cannot be stored and read back exactly is refused, and named.

The usual parsers are generous: they take the last of two equal keys, read NaN, and let a lone
surrogate or a NUL through that Postgres or UTF-8 refuses much later, in the middle of a run.
"""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any, NoReturn

from odin.errors import InvalidArgumentError

DEPTH_MAX = 64
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
_INTEGER_DIGITS_MAX = 20
_SHOWN_CHARACTERS = 40


def strict_json(body: bytes) -> object:
    """Return the value that `body` holds.

    Raises:
        InvalidArgumentError: reason BAD_JSON; `details["fault"]` is one of not_utf8, syntax,
            duplicate_key, not_a_number, number_range, nul, surrogate, too_deep.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse("not_utf8", f"byte {error.start} is not UTF-8")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        _refuse("syntax", f"{error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse("too_deep", f"nested deeper than {DEPTH_MAX}")
    if _needs_a_walk(body):
        _walk(value)
    return value


def _needs_a_walk(body: bytes) -> bool:
    """Return whether the text holds what only the parsed value can judge; most bodies do not."""
    lowered = body.lower()
    return (
        body.count(b"[") + body.count(b"{") > DEPTH_MAX
        or b"\\u0000" in lowered
        or b"\\ud" in lowered
    )


def _walk(value: object) -> None:
    """Refuse strings that cannot be stored and nesting that cannot be read back."""
    level: list[object] = [value]
    for _ in range(DEPTH_MAX):
        _check_texts(level)
        level = [child for one in level for child in _children(one)]
        if not level:
            return
    _check_texts(level)
    if any(isinstance(one, dict | list) for one in level):
        _refuse("too_deep", f"nested deeper than {DEPTH_MAX}")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _check_texts(values: list[object]) -> None:
    for value in values:
        if not isinstance(value, str):
            continue
        if "\0" in value:
            _refuse("nul", "a string holds the character NUL")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            _refuse("surrogate", "a string holds half of a surrogate pair, which is no character")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        _refuse("duplicate_key", f"the key {double[:_SHOWN_CHARACTERS]!r} comes twice")
    return made


def _constant(name: str) -> NoReturn:
    _refuse("not_a_number", f"{name} is not JSON")


def _integer(digits: str) -> int:
    # The length first: int() of thousands of digits is slow, and of more than 4,300 a ValueError.
    number = int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        _refuse("number_range", f"{digits[:_SHOWN_CHARACTERS]} exceeds 64 bits; send it as text")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        _refuse("number_range", f"{digits[:_SHOWN_CHARACTERS]} is too large for a number")
    return number


def _refuse(fault: str, what: str) -> NoReturn:
    raise InvalidArgumentError(
        f"the body is not acceptable JSON: {what}", reason="BAD_JSON", details={"fault": fault}
    ) from None


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    parse_int=_integer,
    parse_float=_float,
    strict=True,
)
