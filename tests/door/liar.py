"""A raw link into a live engine, spoken frame by frame by somebody who may lie."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from odin.core import wire
from odin.runtime.link_sockets import WORKER_PATH
from tests.engine.bed import Bed


class Liar:
    """A raw link, spoken frame by frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, name: str) -> None:
        self.socket = socket
        self.name = name
        self.heard: list[Any] = []

    async def say(self, *messages: Any) -> None:  # noqa: ANN401 - anything at all
        await self.socket.send_bytes(msgspec.msgpack.encode(list(messages)))

    async def hear(self, kind: type, seconds: float = 5.0) -> Any:  # noqa: ANN401 - any message
        """Return the next message of this kind."""
        async with asyncio.timeout(seconds):
            while True:
                for at, message in enumerate(self.heard):
                    if isinstance(message, kind):
                        return self.heard.pop(at)
                frame = await self.socket.receive()
                assert frame.type is aiohttp.WSMsgType.BINARY, frame
                self.heard += wire.decode_to_worker(frame.data)

    async def until_closed(self, seconds: float = 5.0) -> None:
        """Return once the engine has ended the link."""
        async with asyncio.timeout(seconds):
            while (await self.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
        assert self.socket.closed


def hello(name: str, **changes: Any) -> wire.Hello:  # noqa: ANN401 - any field
    good = wire.Hello(1, name, "liar", "", "default", (), (), (), 1, 1)
    return msgspec.structs.replace(good, **changes)


@contextlib.asynccontextmanager
async def linked(bed: Bed, path: str = WORKER_PATH, *, greet: bool = True) -> AsyncIterator[Liar]:
    """Open a link; as a worker, say a hello that is true."""
    name = f"liar-{secrets.token_hex(8)}"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(bed.addresses[0] + path, max_msg_size=0) as socket,
    ):
        liar = Liar(socket, name)
        if greet and path == WORKER_PATH:
            await liar.say(hello(name))
            await liar.hear(wire.Welcome)
        yield liar
