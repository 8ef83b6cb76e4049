"""Payloads and failures: what user values become before they are written down.

A payload is opaque bytes with the name of its encoding. odin never looks inside one, except to
decode it for user code; and user code sees the decoded recorded bytes on the first run too, so that
replay sees the same value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from odin.errors import PayloadError

JSON: Final = "json"
PAYLOAD_BYTES_MAX: Final = 256 * 1024
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""The body of one request to the HTTP API."""
DEPTH_MAX: Final = 64
MESSAGE_CHARS_MAX: Final = 4_096
STACK_CHARS_MAX: Final = 8_192
INT_MAX: Final = 2**64 - 1
INT_MIN: Final = -(2**63)


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """One encoded value."""

    encoding: str
    data: bytes


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed, as it is written down and shown to user code.

    `kind` says which error class user code sees: application, timeout, canceled, terminated,
    activity or worker.
    """

    message: str
    kind: str = "application"
    type: str = ""
    non_retryable: bool = False
    next_retry_delay_ms: int | None = None
    details: tuple[Payload, ...] = ()
    stack_trace: str = ""
    timeout_type: str = ""
    source: str = ""
    cause: Failure | None = None


_encoder = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical")


def encode(value: object, what: str = "value") -> Payload:
    """Return `value` as a JSON payload.

    Dataclasses, msgspec structs, enums, datetimes, UUIDs, decimals, bytes (base64) and tuples are
    allowed beside the JSON types; they come back as themselves only where the reader gives the
    type.

    Raises:
        PayloadError: The value cannot be encoded, or not exactly: NaN, an infinity, a lone
            surrogate, an integer beyond 64 bits, a key that is not a string, a set (its order
            differs from process to process), nesting beyond 64, or more than 256 KiB.
    """
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # UnicodeEncodeError, of a lone surrogate, is a ValueError.
        raise PayloadError(f"{what} cannot be encoded as JSON: {error}") from error
    if len(data) > PAYLOAD_BYTES_MAX:
        raise PayloadError(
            f"{what} is {len(data)} bytes of JSON, more than the {PAYLOAD_BYTES_MAX} allowed;"
            " store it elsewhere and pass a reference",
            reason="PAYLOAD_TOO_LARGE",
        )
    if type(value) not in _PLAIN:
        _check(value, what, 0)
    return Payload(JSON, data)


_PLAIN: Final = frozenset({str, bool, type(None), bytes})


def _check(value: object, what: str, depth: int) -> None:
    """Refuse what the encoder lets through although it would come back as something else."""
    if isinstance(value, (int, float)):
        _check_number(value, what)
        return
    parts = _parts(value, what)
    if parts is None:
        return
    if depth >= DEPTH_MAX:
        raise PayloadError(f"{what} is nested deeper than {DEPTH_MAX}")
    for item in parts:
        if type(item) not in _PLAIN:
            _check(item, what, depth + 1)


def _check_number(value: float, what: str) -> None:
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise PayloadError(f"{what} holds an integer beyond 64 bits; pass it as a string")
    elif not math.isfinite(value):
        raise PayloadError(f"{what} holds {value!r}: JSON has no such number")


def _parts(value: object, what: str) -> Iterable[object] | None:
    """Return the values that `value` is made of; None for a scalar."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise PayloadError(f"{what} has the key {key!r}: JSON keys are strings")
        return value.values()
    if isinstance(value, (set, frozenset)):
        raise PayloadError(
            f"{what} holds a set, whose order differs from process to process; pass a sorted list"
        )
    return _fields(value, what)


def _fields(value: object, what: str) -> Iterable[object] | None:
    if isinstance(value, msgspec.Raw):
        raise PayloadError(f"{what} holds msgspec.Raw, which nothing has checked; pass the value")
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if hasattr(value, "__dataclass_fields__"):
        return [getattr(value, name, None) for name in value.__dataclass_fields__]
    return (value.value,) if isinstance(value, Enum) else None


def decode(payload: Payload, type_: Any = Any) -> Any:  # noqa: ANN401 - user values have any type
    """Return the value of `payload`, converted to `type_` when one is given.

    Raises:
        PayloadError: The encoding is unknown, or the bytes do not fit the type; the message names
            the field.
    """
    if payload.encoding != JSON:
        raise PayloadError(f"unknown payload encoding {payload.encoding!r}")
    try:
        return msgspec.json.decode(payload.data, type=type_)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"payload does not fit {type_!r}: {error}") from error


def encode_all(values: Sequence[object], what: str = "argument") -> tuple[Payload, ...]:
    """Return each value as a payload; errors name its position, counted from 1."""
    return tuple(encode(value, f"{what} {index}") for index, value in enumerate(values, 1))


def clean_text(text: str, limit: int = MESSAGE_CHARS_MAX) -> str:
    """Return `text` as every store can hold it: no NUL, no lone surrogate, at most `limit` long."""
    cleaned = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"
