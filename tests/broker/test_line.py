"""The layout of messages on the wire, and what becomes of those that wait when a channel ends."""

import asyncio
from collections import OrderedDict
from typing import Any, cast

import pytest
from aiormq import spec
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from odin.errors import NotPublishedError
from odin.runtime.rabbitmq_line import Line
from tests.broker.support import until

PART_BYTES_MAX = 1_000


class QuietChannel:
    """A channel whose broker never answers; what is written to it can be read."""

    number = 7
    max_content_size = PART_BYTES_MAX

    def __init__(self, room: int = 10) -> None:
        self.delivery_tag = 0
        self.confirmations: OrderedDict[int, asyncio.Future[object]] = OrderedDict()
        self.message_id_delivery_tag: dict[str, int] = {}
        self.write_queue: asyncio.Queue[ChannelFrame] = asyncio.Queue(room)

    def line(self) -> Line:
        return Line(cast("Any", self))


def laid_out_by_the_library(key: str, body: bytes, message_id: str) -> bytes:
    frames: list[Any] = [
        spec.Basic.Publish(routing_key=key, mandatory=True),
        ContentHeader(
            body_size=len(body),
            properties=spec.Basic.Properties(
                content_type="application/json", delivery_mode=2, message_id=message_id
            ),
        ),
    ]
    frames += [
        ContentBody(body[start : start + PART_BYTES_MAX])
        for start in range(0, len(body), PART_BYTES_MAX)
    ]
    return ChannelFrame.marshall(QuietChannel.number, frames).payload


@pytest.mark.parametrize("size", [0, 1, PART_BYTES_MAX - 1, PART_BYTES_MAX, 65_536])
async def test_a_message_is_laid_out_as_the_library_would(size: int) -> None:
    channel = QuietChannel()
    body, key = b"x" * size, "odin.a." + "ä" * 20
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(channel.line().publish(key, body, "engine-1"))
        frame = await channel.write_queue.get()
        sending.cancel()
    assert frame.payload == laid_out_by_the_library(key, body, "engine-1")


async def test_messages_of_one_turn_are_one_write_with_tags_in_their_order() -> None:
    channel = QuietChannel()
    line = channel.line()
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(line.publish("q", b"x", str(one))) for one in range(3)]
        frame = await channel.write_queue.get()
        tags = dict(channel.message_id_delivery_tag)
        for one in sending:
            one.cancel()
    pieces = [laid_out_by_the_library("q", b"x", str(one)) for one in range(3)]
    assert frame.payload == b"".join(pieces)
    assert channel.write_queue.empty()
    assert tags == {"0": 1, "1": 2, "2": 3}
    assert channel.message_id_delivery_tag == {}


async def test_without_room_at_the_writer_messages_wait_and_keep_their_order() -> None:
    channel = QuietChannel(room=1)
    line = channel.line()
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(line.publish("q", b"x", "first"))]
        await until(channel.write_queue.full)
        for name in ("second", "third"):
            sending.append(group.create_task(line.publish("q", b"x", name)))
            await asyncio.sleep(0)
        taken = [await channel.write_queue.get() for _ in range(2)]
        for one in sending:
            one.cancel()
    assert [frame.payload for frame in taken] == [
        laid_out_by_the_library("q", b"x", "first"),
        b"".join(laid_out_by_the_library("q", b"x", name) for name in ("second", "third")),
    ]


async def test_when_the_channel_has_ended_whoever_waits_is_told_and_nothing_more_is_sent() -> None:
    channel = QuietChannel()
    line = channel.line()
    sending = asyncio.create_task(line.publish("q", b"x", "sent"))
    await channel.write_queue.get()
    line.end()
    with pytest.raises(NotPublishedError) as told:
        await sending
    assert told.value.maybe_sent
    with pytest.raises(NotPublishedError) as refused:
        await line.publish("q", b"x", "late")
    assert not refused.value.maybe_sent
    assert channel.write_queue.empty()
