"""HTTP servers that answer by a script that they share: for what a client makes of bad luck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

DROP: Final = "drop"
HANG: Final = "hang"


@dataclass(frozen=True)
class Say:
    """Answer with this."""

    status: int
    body: object
    content_type: str = "application/json"


@dataclass(frozen=True)
class Copy:
    """A request that came in."""

    address: str
    target: str
    body: bytes
    told_seconds: float

    @property
    def request_id(self) -> object:
        """The request id in its body."""
        return msgspec.json.decode(self.body)["request_id"]


@dataclass
class Script:
    """What the next requests are met with, wherever they come in; the last line is repeated."""

    lines: list[Say | str]
    addresses: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)

    def next_line(self) -> Say | str:
        """Return what the request in hand is met with."""
        return self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]


def problem(status: int, code: str, reason: str, **more: object) -> Say:
    """Return a refusal."""
    body = {"code": code, "reason": reason, "detail": reason, "retryable": status >= 429, **more}
    return Say(status, body, "application/problem+json")


@asynccontextmanager
async def scripted(*lines: Say | str, servers: int = 2) -> AsyncIterator[Script]:
    """Yield a script that as many servers follow."""
    script = Script(list(lines))
    async with AsyncExitStack() as stack:
        for _ in range(servers):
            place: list[str] = []
            server = await asyncio.start_server(_handler(script, place), "127.0.0.1", 0)
            stack.callback(server.close)
            place.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            script.addresses += place
        yield script


def _handler(script: Script, place: list[str]):  # type: ignore[no-untyped-def] # noqa: ANN202 - the callback of asyncio
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (
                int(one.split(":")[1])
                for one in head.splitlines()
                if one.startswith("Content-Length")
            ),
            0,
        )
        body = await reader.readexactly(length)
        script.copies.append(Copy(place[0], head.split(" ")[1], body, _told_seconds(head)))
        line = script.next_line()
        if line == HANG:
            await reader.read()  # until the client gives up
        elif isinstance(line, Say):
            writer.write(_answer(line))
            await writer.drain()
        writer.close()

    return handle


def _told_seconds(head: str) -> float:
    [told] = [line for line in head.splitlines() if line.startswith("X-Odin-Timeout")]
    return float(told.split(":")[1])


def _answer(say: Say) -> bytes:
    is_msgpack = say.content_type == "application/msgpack"
    body = msgspec.msgpack.encode(say.body) if is_msgpack else msgspec.json.encode(say.body)
    head = (
        f"HTTP/1.1 {say.status} X\r\ncontent-type: {say.content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
