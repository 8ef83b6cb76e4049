"""A proxy of one link before a server of the test's own, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cluster.ports import choose_ports
from cluster.proxy.exchange import Exchange
from cluster.proxy.faults import Fault, LinkName, Order
from cluster.proxy.settings import Wire

LINK = LinkName("engine-1", "postgres")


@dataclass
class Heard:
    """What the server saw of one connection."""

    data: bytearray = field(default_factory=bytearray)
    end: str = ""  # "eof" or "reset"
    writer: asyncio.StreamWriter | None = None


class Server:
    """Keeps what it hears; answers each chunk with the same, unless it is mute."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.is_mute = False

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = Heard(writer=writer)
        self.heard.append(one)
        try:
            while data := await reader.read(65_536):
                one.data += data
                if not self.is_mute:
                    writer.write(data)
            one.end = "eof"
        except ConnectionError:
            one.end = "reset"
        finally:
            writer.close()


class Scene:
    """The exchange, its one link, and the server behind it."""

    def __init__(self, exchange: Exchange, server: Server, port: int) -> None:
        self.exchange = exchange
        self.server = server
        self.port = port

    async def begin(self, fault: Fault, seconds: float = 20.0) -> str:
        order = Order(links=[LINK], fault=fault, seconds=seconds)
        return await self.exchange.begin(order)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def talk(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Heard]:
        """Connect, and say hello to the end."""
        known = len(self.server.heard)
        reader, writer = await self.connect()
        writer.write(b"hello")
        async with asyncio.timeout(5):
            assert await reader.readexactly(5) == b"hello"
        return reader, writer, self.server.heard[known]


async def until(what: Callable[[], object], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.005)


async def is_silent(reader: asyncio.StreamReader, seconds: float = 0.3) -> bool:
    """Whether nothing is heard, not even an end, for that long."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


@asynccontextmanager
async def scene(dependency: str = "postgres") -> AsyncIterator[Scene]:
    server = Server()
    listener = await asyncio.start_server(server, "127.0.0.1", 0)
    target = listener.sockets[0].getsockname()[1]
    port = choose_ports(["link"])["link"]
    wire = Wire("engine-1", dependency, port, "127.0.0.1", target)
    exchange, stop = Exchange([wire]), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(exchange.run(stop))
            await exchange.is_open.wait()
            try:
                yield Scene(exchange, server, port)
            finally:
                stop.set()
    finally:
        listener.close()
        for one in server.heard:
            if one.writer is not None:
                one.writer.transport.abort()
