"""Task messages: how a task is named in the outbox, at the broker and in between.

    outbox row     destination "w:<task_queue>" or "a:<task_queue>", body = msgpack TaskEntry
    broker message JSON {"v":1,"kind":"w","tasks":[[shard,range_id,run_id,number,attempt],...]}

A message carries ids only, so that nothing in a queue can be poison; whoever takes it asks the
shard's owner whether each task is still wanted. `range_id` is a hint of where to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from odin.core.ids import check_id
from odin.core.wire import TaskEntry
from odin.core.wire.parts import Count, Label, RangeNumber, ShardNumber
from odin.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKFLOW: Final = "w"
ACTIVITY: Final = "a"
KINDS: Final = (WORKFLOW, ACTIVITY)

MESSAGE_VERSION: Final = 1
MESSAGE_BYTES_MAX: Final = 64 * 1024
PACK_MAX: Final = 64
_PACKS_PER_WORKER: Final = 4


class TaskMessageError(InvalidArgumentError):
    """A message or an outbox row that names no tasks; acknowledge it, count it, go on.

    `reason` is DAMAGED, FOREIGN (of another version of the format) or OVERSIZED.
    """

    reason = "DAMAGED"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an outbox row goes: a task queue, and which kind of task."""

    kind: str
    task_queue: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.task_queue}"


def format_destination(kind: str, task_queue: str) -> str:
    """Return the destination of a task as an outbox row holds it.

    Raises:
        InvalidArgumentError: `kind` is not "w" or "a", or the queue's name is not an id.
    """
    return str(_checked_destination(kind, task_queue))


def parse_destination(text: str) -> Destination:
    """Return the kind and task queue that an outbox row's destination names.

    Raises:
        InvalidArgumentError: It names something else, such as another shard.
    """
    kind, _, task_queue = text.partition(":")
    return _checked_destination(kind, task_queue)


def is_task_destination(text: str) -> bool:
    """Return whether an outbox row goes to a task queue (and not to another shard)."""
    return text[:2] in {"w:", "a:"}


def encode_entry(entry: TaskEntry) -> bytes:
    """Return a task as the body of its outbox row."""
    return _ENTRY_ENCODER.encode(entry)


def decode_entry(body: bytes) -> TaskEntry:
    """Return the task that an outbox row's body names.

    Raises:
        TaskMessageError: The body is damaged.
    """
    try:
        entry = _ENTRY_DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TaskMessageError(f"the body of an outbox row is damaged: {error}") from error
    if entry.kind not in KINDS:
        raise TaskMessageError(f"an outbox row names a task of kind {entry.kind!r:.20}")
    return entry


def encode_message(kind: str, entries: Sequence[TaskEntry]) -> bytes:
    """Return tasks of one kind as one broker message.

    Args:
        kind: "w" or "a", the kind of every entry.
        entries: 1 to 64 tasks.

    Raises:
        TaskMessageError: The message would be larger than 64 KiB (64 tasks never are).
        ValueError: There are no entries.
    """
    if not entries:
        raise ValueError("a message names at least one task")
    tasks = [(one.shard_id, one.range_id, one.run_id, one.number, one.attempt) for one in entries]
    body = _ENCODER.encode({"v": MESSAGE_VERSION, "kind": kind, "tasks": tasks})
    if len(body) > MESSAGE_BYTES_MAX:
        raise _oversized(len(body))
    return body


def decode_message(body: bytes) -> list[TaskEntry]:
    """Return the tasks that a broker message names, at least one, all of one kind.

    Raises:
        TaskMessageError: The body is oversized, damaged or of another version. Nothing else.
    """
    if len(body) > MESSAGE_BYTES_MAX:
        raise _oversized(len(body))
    try:
        message = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(body, error) from error
    if message.v != MESSAGE_VERSION:
        raise _foreign(message.v)
    kind = message.kind
    return [TaskEntry(kind, *task) for task in message.tasks]


def pack_size(unpublished: int, workers: int) -> int:
    """Return how many tasks of one queue share a message.

    Alone, a task travels alone, at the lowest latency. Under load a hop through a quorum queue is
    the dearest part of a task, so that several share one; yet every worker gets several messages
    of a backlog, so that sharing never leaves one of them idle.

    Args:
        unpublished: The owner's rows for that queue without a confirm.
        workers: How many workers on the owner's links serve the queue; none counts as one.
    """
    return max(1, min(PACK_MAX, unpublished // (_PACKS_PER_WORKER * max(1, workers))))


_Task: TypeAlias = tuple[ShardNumber, RangeNumber, Label, Count, Count]


class _Message(msgspec.Struct, frozen=True):
    v: int
    kind: Literal["w", "a"]
    tasks: Annotated[list[_Task], Meta(min_length=1)]


class _Envelope(msgspec.Struct, frozen=True):
    v: int


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Message)
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_ENTRY_ENCODER: Final = msgspec.msgpack.Encoder()
_ENTRY_DECODER: Final = msgspec.msgpack.Decoder(TaskEntry)


def _checked_destination(kind: str, task_queue: str) -> Destination:
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"a task's destination is w:<task_queue> or a:<task_queue>, not one of kind {kind!r}",
            reason="BAD_DESTINATION",
        )
    return Destination(kind, check_id(task_queue, "task_queue"))


def _unreadable(body: bytes, error: Exception) -> TaskMessageError:
    """Tell a message of another version from a damaged one."""
    try:
        version = _ENVELOPE.decode(body).v
    except (msgspec.DecodeError, RecursionError):
        version = MESSAGE_VERSION
    if version != MESSAGE_VERSION:
        return _foreign(version)
    return TaskMessageError(f"a task message is damaged: {error}")


def _foreign(version: int) -> TaskMessageError:
    return TaskMessageError(
        f"a task message has version {version}, this is {MESSAGE_VERSION}", reason="FOREIGN"
    )


def _oversized(size: int) -> TaskMessageError:
    return TaskMessageError(
        f"a task message has {size} bytes, at most {MESSAGE_BYTES_MAX} are allowed",
        reason="OVERSIZED",
    )
