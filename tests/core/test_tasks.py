"""The message codec: what goes in comes out, and what is not a message raises one error only."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odin.core.tasks import (
    MESSAGE_BYTES_MAX,
    PACK_MAX,
    TaskMessageError,
    decode_entry,
    decode_message,
    encode_entry,
    encode_message,
    format_destination,
    is_task_destination,
    pack_size,
    parse_destination,
)
from odin.core.wire import TaskEntry
from odin.errors import InvalidArgumentError

NAMES = st.from_regex(r"[A-Za-z0-9._:@-]{1,200}", fullmatch=True).filter(
    lambda name: name not in {".", ".."}
)
COUNTS = st.integers(min_value=0, max_value=2**31 - 1)
KINDS = st.sampled_from(["w", "a"])


def entries(kind: str) -> st.SearchStrategy[TaskEntry]:
    return st.builds(
        TaskEntry,
        kind=st.just(kind),
        shard_id=COUNTS,
        range_id=COUNTS,
        run_id=NAMES,
        number=COUNTS,
        attempt=COUNTS,
    )


PACKS = KINDS.flatmap(lambda kind: st.lists(entries(kind), min_size=1, max_size=PACK_MAX))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
LOOKALIKES = st.fixed_dictionaries(
    {},
    optional={
        "v": st.just(1) | JSON,
        "kind": KINDS | JSON,
        "tasks": st.lists(st.tuples(COUNTS, COUNTS, NAMES, COUNTS, COUNTS | JSON) | JSON) | JSON,
        "more": JSON,
    },
)


@given(PACKS)
def test_a_message_names_the_tasks_that_were_packed(pack: list[TaskEntry]) -> None:
    body = encode_message(pack[0].kind, pack)
    assert len(body) <= MESSAGE_BYTES_MAX
    assert decode_message(body) == pack


def test_a_message_looks_as_documented() -> None:
    body = encode_message("a", [TaskEntry("a", 7, 3, "r", 12, 1), TaskEntry("a", 8, 4, "s", 1, 2)])
    assert json.loads(body) == {
        "v": 1,
        "kind": "a",
        "tasks": [[7, 3, "r", 12, 1], [8, 4, "s", 1, 2]],
    }


@given(st.binary(max_size=500))
@example(b'{"v":1,"kind":"w","tasks":[[1,1,"r\xff",1,1]]}')
@example(b'{"v":1,"kind":"w","x":' + b"[" * 30_000)
@example(b"[" * 60_000)
@example(b'{"v":1,"kind":"w","tasks":[[1,1,"r",1,99999999999999999999999999]]}')
@example(b'{"v":1e400,"kind":"w","tasks":[[1,1,"r",1,1]]}')
def test_decoding_bytes_raises_nothing_but_the_typed_error(body: bytes) -> None:
    _decode(body)


@given(LOOKALIKES)
def test_decoding_a_lookalike_raises_nothing_but_the_typed_error(value: object) -> None:
    _decode(json.dumps(value).encode())


@given(PACKS, st.data())
def test_decoding_a_cut_or_flipped_message_raises_nothing_but_the_typed_error(
    pack: list[TaskEntry], data: st.DataObject
) -> None:
    body = bytearray(encode_message(pack[0].kind, pack))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    _decode(bytes(body))
    _decode(bytes(body[:at]))


def _decode(body: bytes) -> None:
    try:
        found = decode_message(body)
    except TaskMessageError as error:
        assert error.reason in {"DAMAGED", "FOREIGN", "OVERSIZED"}  # noqa: PT017 - both ways are fine
        return
    assert found
    assert len({one.kind for one in found}) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "DAMAGED"),
        (b"hello", "DAMAGED"),
        (b"null", "DAMAGED"),
        (b'{"v":1,"kind":"w","tasks":[]}', "DAMAGED"),
        (b'{"v":1,"kind":"x","tasks":[[1,1,"r",1,1]]}', "DAMAGED"),
        (b'{"v":1,"kind":"w","tasks":[[1,1,"",1,1]]}', "DAMAGED"),
        (b'{"v":1,"kind":"w","tasks":[[1,1,"r\\n",1,1]]}', "DAMAGED"),
        (b'{"v":1,"kind":"w","tasks":[[-1,1,"r",1,1]]}', "DAMAGED"),
        (b'{"v":1,"kind":"w","tasks":[[true,1,"r",1,1]]}', "DAMAGED"),
        (b'{"v":2,"kind":"w","tasks":[[1,1,"r",1,1]]}', "FOREIGN"),
        (b'{"v":2,"jobs":{}}', "FOREIGN"),
        (b" " * (MESSAGE_BYTES_MAX + 1), "OVERSIZED"),
    ],
)
def test_what_is_no_message_says_why(body: bytes, reason: str) -> None:
    with pytest.raises(TaskMessageError) as caught:
        decode_message(body)
    assert caught.value.reason == reason


def test_a_message_is_never_empty_and_never_oversized() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_message("w", [])
    with pytest.raises(TaskMessageError) as caught:
        encode_message("w", [TaskEntry("w", 1, 1, "r" * 200, 1, 1)] * 400)
    assert caught.value.reason == "OVERSIZED"


@given(KINDS.flatmap(entries))
def test_an_outbox_body_names_its_task(entry: TaskEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@given(st.binary(max_size=200))
@example(b"\x91" * 5_000)
@example(encode_entry(TaskEntry("x", 1, 1, "r", 1, 1)))
def test_a_damaged_outbox_body_raises_nothing_but_the_typed_error(body: bytes) -> None:
    try:
        decode_entry(body)
    except TaskMessageError:
        return


@given(KINDS, NAMES)
def test_a_destination_names_kind_and_task_queue(kind: str, task_queue: str) -> None:
    text = format_destination(kind, task_queue)
    parsed = parse_destination(text)
    assert (parsed.kind, parsed.task_queue) == (kind, task_queue)
    assert is_task_destination(text)


@pytest.mark.parametrize("text", ["", "w", "w:", "x:default", "shard:7", "w:a b", "w:..", "W:q"])
def test_what_is_no_task_destination_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_destination(text)


def test_a_shard_is_no_task_destination() -> None:
    assert not is_task_destination("shard:7")


@pytest.mark.parametrize(
    ("unpublished", "workers", "size"),
    [
        (0, 1, 1), (1, 1, 1), (7, 1, 1), (8, 1, 2), (64, 1, 16), (64, 4, 4), (256, 1, 64),
        (100_000, 1, 64), (100_000, 1000, 25), (64, 0, 16),
    ],
)  # fmt: skip
def test_tasks_share_messages_only_under_load(unpublished: int, workers: int, size: int) -> None:
    assert pack_size(unpublished, workers) == size
