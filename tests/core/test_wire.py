"""Frames: every message comes back, garbage and foreign messages do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core import wire
from tests.core.struct_strategies import instances

Decode: TypeAlias = Callable[[bytes], list[Any]]

DECODERS: list[tuple[Any, Decode]] = [
    (wire.FromWorker, wire.decode_from_worker),
    (wire.ToWorker, wire.decode_to_worker),
    (wire.BetweenEngines, wire.decode_between_engines),
]
KINDS = [(cls, decode) for union, decode in DECODERS for cls in get_args(union)]
NAMES = [f"{decode.__name__}:{cls.__name__}" for cls, decode in KINDS]


@pytest.mark.parametrize(("cls", "decode"), KINDS, ids=NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_every_message_comes_back_from_its_frame_as_it_was(
    data: st.DataObject, cls: type, decode: Decode
) -> None:
    messages = data.draw(st.lists(instances(cls), min_size=1, max_size=2))
    assert decode(wire.encode_frame(messages)) == messages


@pytest.mark.parametrize(("union", "decode"), DECODERS, ids=["from", "to", "between"])
def test_a_frame_holds_a_batch_of_different_messages(union: object, decode: Decode) -> None:
    batch: list[Any] = [wire.Ping(1), wire.Pong(2), wire.Ping(3)]
    assert decode(wire.encode_frame(batch)) == batch


@pytest.mark.parametrize(("union", "decode"), DECODERS, ids=["from", "to", "between"])
def test_tags_are_unique_on_each_link(union: object, decode: Decode) -> None:
    tags = [cls.__struct_config__.tag for cls in get_args(union)]
    assert len(set(tags)) == len(tags)
    assert all(cls.__struct_config__.array_like for cls in get_args(union))


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x00", b"\x91\x91\xa4nope", b"\x91\x80", b"\xc1", msgspec.msgpack.encode([["ping"]])],
    ids=repr,
)
@pytest.mark.parametrize("decode", [one for _, one in DECODERS], ids=["from", "to", "between"])
def test_a_damaged_or_foreign_frame_is_a_decode_error(decode: Decode, frame: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(frame)


@given(frame=st.binary(max_size=60))
def test_no_frame_raises_anything_but_a_decode_error(frame: bytes) -> None:
    for _, decode in DECODERS:
        try:
            decode(frame)
        except msgspec.DecodeError:
            continue


def test_a_message_with_a_field_of_the_future_can_be_read() -> None:
    frame = msgspec.msgpack.encode([["ping", 4, "future"]])
    assert wire.decode_from_worker(frame) == [wire.Ping(4)]


def test_a_message_without_its_newest_fields_can_be_read() -> None:
    frame = msgspec.msgpack.encode([["claim_w", 1, 2, "r", 3]])
    assert wire.decode_from_worker(frame) == [wire.ClaimWorkflowTask(1, 2, "r", 3)]
