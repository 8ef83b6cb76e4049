"""The messages of one channel on their way: what one turn of the event loop publishes is one write.

The client library writes each message apart, through a lock, five objects and four callbacks. Here
the frames of a message are laid out at once, and those of one turn go to the library's writer as
one piece. The library still reads the answers: it finds whoever waits by delivery tag, or by
message id where a message comes back.

Frames, as AMQP 0-9-1 has them (numbers are big-endian, short texts have their length in front):

    method  1, channel, size | 60 40, 0, exchange "", routing key, mandatory | CE
    header  2, channel, size | 60, 0, size of the body, which properties, properties | CE
    body    3, channel, size | a part of the body, at most as large as agreed | CE
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final, cast

from aiormq.abc import ChannelFrame

from odin.errors import NotPublishedError

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel as Channel

_FRAME: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">HHH")
_HEADER: Final = struct.Struct(">HHQH")
_METHOD_TYPE, _HEADER_TYPE, _BODY_TYPE = 1, 2, 3
_BASIC, _PUBLISH = 60, 40
_END: Final = b"\xce"
_MANDATORY: Final = b"\x01"
_WHICH_PROPERTIES: Final = 1 << 15 | 1 << 12 | 1 << 7  # content type, delivery mode, message id
_JSON_AND_PERSISTENT: Final = b"\x10application/json\x02"
_RETRY_SECONDS: Final = 0.01


def frames_of(channel_number: int, routing_key: str) -> bytes:
    """Return the method frame of a mandatory publish to the default exchange."""
    key = routing_key.encode()
    payload = b"".join(
        (_METHOD.pack(_BASIC, _PUBLISH, 0), b"\0", bytes((len(key),)), key, _MANDATORY)
    )
    return _FRAME.pack(_METHOD_TYPE, channel_number, len(payload)) + payload + _END


def content_of(
    channel_number: int, body: bytes, message_id: str, part_bytes_max: int
) -> list[bytes]:
    """Return the frames of a persistent JSON message, header and body, in pieces.

    Args:
        channel_number: The channel.
        body: The message.
        message_id: At most 255 bytes.
        part_bytes_max: The most of the body that one frame may carry, at least 1.
    """
    name = message_id.encode()
    properties = b"".join((_JSON_AND_PERSISTENT, bytes((len(name),)), name))
    pieces = [
        _FRAME.pack(_HEADER_TYPE, channel_number, _HEADER.size + len(properties)),
        _HEADER.pack(_BASIC, 0, len(body), _WHICH_PROPERTIES),
        properties,
        _END,
    ]
    for start in range(0, len(body), part_bytes_max):
        part = body[start : start + part_bytes_max]
        pieces += (_FRAME.pack(_BODY_TYPE, channel_number, len(part)), part, _END)
    return pieces


class Line:
    """Publishes over one channel with confirms, whose only publisher it is."""

    def __init__(self, channel: Channel) -> None:
        """Take an open channel with publisher confirms, whose returns raise."""
        # The abstract class does not name what a publish keeps for the answers.
        self._channel = cast("Any", channel)
        self._number: int = channel.number
        self._part_bytes_max: int = max(1, self._channel.max_content_size)
        self._methods: dict[str, bytes] = {}
        self._pieces: list[bytes] = []
        self._unanswered: set[asyncio.Future[object]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    async def publish(self, routing_key: str, body: bytes, message_id: str) -> None:
        """Publish a persistent, mandatory message and return once the broker has confirmed it.

        Raises:
            DeliveryError: The broker returned it (PublishError) or refused it.
            NotPublishedError: The connection has ended; `maybe_sent` says whether before or after.
        """
        if self._is_over:
            raise NotPublishedError("the connection was closed")
        confirm = self._loop.create_future()
        self._unanswered.add(confirm)
        channel = self._channel
        channel.delivery_tag += 1
        channel.confirmations[channel.delivery_tag] = confirm
        channel.message_id_delivery_tag[message_id] = channel.delivery_tag
        method = self._methods.get(routing_key)
        if method is None:
            method = self._methods[routing_key] = frames_of(self._number, routing_key)
        if not self._pieces:
            self._loop.call_soon(self._write)
        self._pieces.append(method)
        self._pieces += content_of(self._number, body, message_id, self._part_bytes_max)
        try:
            await confirm
        finally:
            self._unanswered.discard(confirm)
            channel.message_id_delivery_tag.pop(message_id, None)

    def end(self) -> None:
        """Tell whoever waits that the connection has ended: no answer will come any more."""
        self._is_over = True
        self._pieces.clear()
        for confirm in self._unanswered:
            if not confirm.done():
                confirm.set_exception(
                    NotPublishedError("the connection was closed", maybe_sent=True)
                )

    def _write(self) -> None:
        """Hand over what has gathered; the library's writer takes frames as fast as they come."""
        if not self._pieces:
            return
        try:
            self._channel.write_queue.put_nowait(
                ChannelFrame(payload=b"".join(self._pieces), should_close=False)
            )
        except asyncio.QueueFull:
            self._loop.call_later(_RETRY_SECONDS, self._write)
        else:
            self._pieces.clear()
