"""What the tests of this tier share: an engine's end of the relay, a proxy, a clock, plain AMQP."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import aio_pika

from odin.core.wire import TaskEntry
from odin.errors import NotPublishedError
from odin.runtime.clock import Timer
from relay.publisher import Callables
from relay.transport import OutboxRow

Loop: TypeAlias = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
Waiter: TypeAlias = "asyncio.Future[None]"

PATIENCE_SECONDS = 15


@asynccontextmanager
async def running(*loops: Loop) -> AsyncIterator[asyncio.Event]:
    """Run loops beside the block and stop them, in order, after it."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop(stop))
        try:
            yield stop
        finally:
            stop.set()


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; an error after 15 s."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def row(
    number: int,
    destination: str = "w:q",
    *,
    shard_id: int = 1,
    range_id: int = 1,
    publish_count: int = 0,
) -> OutboxRow:
    """Return an outbox row whose task carries the row's number."""
    entry = TaskEntry(destination[0], shard_id, range_id, f"run-{number}", number, 1)
    return OutboxRow(shard_id, number, range_id, destination, entry, publish_count, 0)


class EngineEnd:
    """What an engine hands to the relay, in memory."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self.now_us = 0
        self.confirmed: list[int] = []
        self.confirmed_by_term: list[tuple[int, int, tuple[int, ...]]] = []
        self.delayed: list[tuple[int, int, int]] = []

    @property
    def callables(self) -> Callables:
        return Callables(
            confirmed=self._confirmed,
            delayed=self._delayed,
            workers=lambda _: self.workers,
            now_us=lambda: self.now_us,
        )

    def _confirmed(self, shard_id: int, range_id: int, outbox_ids: Sequence[int]) -> None:
        self.confirmed += outbox_ids
        self.confirmed_by_term.append((shard_id, range_id, tuple(outbox_ids)))

    def _delayed(
        self, _shard_id: int, _range_id: int, outbox_id: int, publish_count: int, next_us: int
    ) -> None:
        self.delayed.append((outbox_id, publish_count, next_us))


class MemoryTransport:
    """A transport whose answers the test gives: each message waits until it is answered."""

    def __init__(self, *, confirm_at_once: bool = False) -> None:
        self.confirm_at_once = confirm_at_once
        self.failing: dict[str, bool] = {}
        self.messages: list[tuple[str, list[int]]] = []
        self.waiting: list[Waiter] = []

    async def publish(self, destination: str, entries: Sequence[TaskEntry]) -> None:
        self.messages.append((destination, [entry.number for entry in entries]))
        if destination in self.failing:
            raise NotPublishedError("no", maybe_sent=self.failing[destination])
        if not self.confirm_at_once:
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self.waiting.append(waiter)
            await waiter

    def confirm_all(self) -> None:
        for waiter in self.waiting:
            waiter.set_result(None)
        self.waiting.clear()

    def sent(self, destination: str) -> list[list[int]]:
        return [numbers for where, numbers in self.messages if where == destination]


class ManualClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self._now = 0.0
        self._count = 0
        self._sleepers: list[tuple[float, int, Waiter]] = []

    def boottime(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return datetime.fromtimestamp(self._now, UTC)

    async def sleep(self, seconds: float) -> None:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, waiter))
        await waiter

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, waiter))
        waiter.add_done_callback(lambda done: None if done.cancelled() else callback())
        return waiter  # type: ignore[return-value] # cancel() says whether it could, which is more

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking every sleeper at its time."""
        target = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            self._now, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)
            await settle()
        self._now = target
        await settle()


async def settle() -> None:
    """Let every task run until all of them wait."""
    for _ in range(20):
        await asyncio.sleep(0)


class Proxy:
    """A TCP proxy in front of the broker: its connections can be cut, and refused for a while."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.refusing = False
        self.connections_count = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        """The broker's address with the proxy in place of host and port."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._target.username}:{self._target.password}"
        return urlunsplit(self._target._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def cut(self) -> None:
        """Break every connection, as a crash would."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        self.connections_count += 1
        inner_reader, inner_writer = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        both = {writer, inner_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, inner_writer))
                group.create_task(_pump(inner_reader, writer))
        finally:
            self._writers -= both


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def messages_in(
    url: str, queue: str, at_least: int
) -> list[aio_pika.abc.AbstractIncomingMessage]:
    """Take every message off a queue that nobody else uses meanwhile.

    The count that the broker tells may lag, hence `at_least`.
    """
    taken: list[aio_pika.abc.AbstractIncomingMessage] = []

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        taken.append(message)

    connection = await aio_pika.connect(url, timeout=5)
    async with connection, connection.channel() as channel:
        found = await channel.declare_queue(queue, passive=True)
        await found.consume(take, no_ack=True)
        count = max(at_least, found.declaration_result.message_count or 0)
        await until(lambda: len(taken) >= count)
    return taken


async def delete_queue(url: str, queue: str) -> None:
    """Delete a queue with all that is in it, if it exists."""
    connection = await aio_pika.connect(url, timeout=5)
    async with connection, connection.channel() as channel:
        await channel.queue_delete(queue, if_unused=False, if_empty=False)
