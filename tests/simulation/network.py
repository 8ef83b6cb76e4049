"""The network between simulated processes: connections that carry things in order, or do not.

What is sent is a call that happens at the other end, after a while of seeded length, in the world's
context: a frozen process receives, as a kernel does for it, and reads when it goes on. A direction
that is blocked keeps what is sent, as TCP does, and delivers it in order once it is open again. A
connection can be reset, at both ends at once, or be lost without a word when a machine dies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from odin.runtime.link_sockets import CONNECT_SECONDS
from odin.runtime.links import LinkClosedError
from tests.simulation.process import HostProcess, here

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop

LATENCY_SECONDS = (0.0002, 0.003)
_SPREAD_SECONDS = LATENCY_SECONDS[1] - LATENCY_SECONDS[0]
HICCUP_CHANCE = 0.01
HICCUP_SECONDS = 0.08


class Stream:
    """One direction of a connection."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self.path = (source, target)
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._arrives_at = 0.0
        self.is_broken = False

    def send(self, happen: Callable[..., None], *arguments: object) -> None:
        """Have `happen` called at the other end, after everything that was sent before."""
        blocked = self._network.blocked
        if self._held or (blocked and self.path in blocked):
            self._held.append((happen, arguments))
            self._network.waiting.setdefault(self.path, {})[self] = None
        else:
            self._carry(happen, arguments)

    def open_again(self) -> None:
        """The direction is open: deliver what was kept."""
        held, self._held = self._held, deque()
        for happen, arguments in held:
            self._carry(happen, arguments)

    def _carry(self, happen: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        network = self._network
        at = max(self._arrives_at + 1e-6, network.loop.now + network.latency(self.path))
        self._arrives_at = at
        network.loop.call_at(at, self._arrive, happen, arguments, context=network.context)

    def _arrive(self, happen: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.is_broken:
            happen(*arguments)


class Connection:
    """Two hosts and a stream each way. `lost` are called when it is reset."""

    def __init__(self, network: Network, source: HostProcess, target: str) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.there = Stream(network, source.host, target)
        self.back = Stream(network, target, source.host)
        self.lost: list[Callable[[], None]] = []
        self.owners: list[HostProcess] = [source]
        self.is_open = True
        network.connections[self] = None

    def reset(self) -> None:
        """Break it: nothing more arrives, and both ends know."""
        if not self.is_open:
            return
        self.drop()
        for lost in self.lost:
            lost()

    def drop(self) -> None:
        """Let go of it without telling anybody."""
        self.is_open = False
        self.there.is_broken = self.back.is_broken = True
        self.network.connections.pop(self, None)


class End:
    """One end of a connection that carries frames: a link's socket."""

    def __init__(self, connection: Connection, out: Stream) -> None:
        self._connection = connection
        self._out = out
        self._frames: deque[bytes | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self.other: End | None = None
        connection.lost.append(self.lose)

    async def send_bytes(self, data: bytes) -> None:
        """Send one frame."""
        if self._closed or not self._connection.is_open:
            raise ConnectionResetError("the connection is gone")
        other = self.other
        assert other is not None
        self._out.send(other.arrive, data)

    async def receive_bytes(self) -> bytes | None:
        """Return the next frame, None once the connection is closed."""
        while not self._frames:
            if self._closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._frames.popleft()

    async def close(self, code: int, reason: str) -> None:
        """Close the connection: the other end learns of it after what was sent."""
        del code, reason
        if self._closed or not self._connection.is_open:
            return
        self.lose()
        other = self.other
        assert other is not None
        self._out.send(lambda: other.finish(self._connection))

    def arrive(self, data: bytes) -> None:
        """A frame has come."""
        self._frames.append(data)
        if self._waiter is not None:
            self._wake()

    def finish(self, connection: Connection) -> None:
        """The other end has closed."""
        self._frames.append(None)
        self.lose()
        connection.drop()

    def lose(self) -> None:
        """The connection is gone."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class WebSocket:
    """The server's end of a link, as the engine's routes take one."""

    def __init__(self, end: End, accepted: Callable[[], None]) -> None:
        self._end = end
        self._accepted = accepted
        self.client = None

    async def accept(self) -> None:
        """Take the connection."""
        self._accepted()

    async def receive(self) -> dict[str, Any]:
        """Return the next ASGI event."""
        data = await self._end.receive_bytes()
        if data is None:
            return {"type": "websocket.disconnect", "code": 1000}
        return {"type": "websocket.receive", "bytes": data}

    async def send(self, message: dict[str, Any]) -> None:
        """Send an ASGI event."""
        if message["type"] == "websocket.send":
            await self._end.send_bytes(message["bytes"])
        else:
            await self._end.close(1000, "")


Work = Callable[[], Awaitable[None]]


@dataclass(eq=False)
class Door:
    """Where a process listens: what comes in is done by a loop of its own."""

    process: HostProcess
    serve_link: Callable[[str, WebSocket], Awaitable[None]]
    answer: Callable[[Any, float], Awaitable[Any]]
    work: asyncio.Queue[Work]


class Network:
    """All connections, and what is the matter with them.

    Attributes:
        blocked: Directions (from, to) in which nothing arrives.
        slow: Directions that take longer, in seconds.
        doors: Who listens, by address.
    """

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.context = Context()
        self.blocked: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.doors: dict[str, Door] = {}
        self.hosts: dict[str, str] = {}
        self.connections: dict[Connection, None] = {}
        self.waiting: dict[tuple[str, str], dict[Stream, None]] = {}

    def latency(self, path: tuple[str, str]) -> float:
        """Return how long the next thing takes."""
        roll = self.random.random
        seconds = LATENCY_SECONDS[0] + _SPREAD_SECONDS * roll()
        if self.slow:
            seconds += self.slow.get(path, 0.0)
        return seconds + roll() * HICCUP_SECONDS if roll() < HICCUP_CHANCE else seconds

    def delay(self, source: str, target: str) -> float | None:
        """Return the extra seconds of a direction, None if it is blocked: for the database."""
        if not self.blocked and not self.slow:
            return 0.0
        path = (source, target)
        return None if path in self.blocked else self.slow.get(path, 0.0)

    # What befalls it.

    def block(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self.blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Let through what was kept, and everything from now on."""
        self.blocked.discard((source, target))
        for stream in self.waiting.pop((source, target), {}):
            stream.open_again()

    def cut(self, one: str, other: str) -> int:
        """Reset all connections between two hosts; return how many there were."""
        pair = {one, other}
        found = [each for each in self.connections if set(each.there.path) == pair]
        for connection in found:
            connection.reset()
        return len(found)

    def lose_process(self, process: HostProcess, *, silently: bool) -> None:
        """A process has died: its peers are told, unless its whole machine has gone."""
        for address, door in list(self.doors.items()):
            if door.process is process:
                del self.doors[address]
        for connection in list(self.connections):
            if process in connection.owners:
                if silently:
                    connection.there.is_broken = connection.back.is_broken = True
                else:
                    connection.reset()

    def forget_host(self, host: str) -> None:
        """A machine has come back: what it does not know any more is reset."""
        for connection in list(self.connections):
            if connection.there.is_broken and host in connection.there.path:
                connection.reset()

    # What uses it.

    async def connect(self, address: str, path: str) -> End:
        """Open a link's socket, as `connect_socket` does.

        Raises:
            LinkClosedError: The address cannot be reached, or refuses.
        """
        source = here()
        connection = Connection(self, source, self.host_of(address))
        taken: asyncio.Future[None] = self.loop.create_future()
        upgraded: asyncio.Future[None] = self.loop.create_future()
        mine = End(connection, connection.there)
        theirs = End(connection, connection.back)
        mine.other, theirs.other = theirs, mine
        connection.lost.append(lambda: _refuse(upgraded))

        def accepted() -> None:
            connection.back.send(lambda: settle(upgraded))

        def arrive() -> None:
            door = self.doors.get(address)
            if door is None:
                connection.back.send(lambda: _refuse(taken, ConnectionRefusedError))
                return
            connection.owners.append(door.process)
            connection.back.send(lambda: settle(taken))
            door.work.put_nowait(lambda: door.serve_link(path, WebSocket(theirs, accepted)))

        connection.there.send(arrive)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await taken
            await upgraded
        except (OSError, TimeoutError) as error:
            connection.reset()
            raise LinkClosedError(f"cannot open {address}: {error}") from error
        except asyncio.CancelledError:
            connection.reset()
            raise
        return mine

    async def call(self, address: str, request: object, seconds: float) -> Any:  # noqa: ANN401 - what the door answers
        """Have the door at `address` answer a request, on a connection of its own.

        Raises:
            ConnectionRefusedError: Nobody listens; nothing was sent.
            ConnectionResetError: The connection was lost.
        """
        connection = Connection(self, here(), self.host_of(address))
        answered: asyncio.Future[Any] = self.loop.create_future()
        connection.lost.append(lambda: _refuse(answered))

        def arrive() -> None:
            door = self.doors.get(address)
            if door is None:
                connection.back.send(lambda: _refuse(answered, ConnectionRefusedError))
                return
            connection.owners.append(door.process)

            async def work() -> None:
                answer = await door.answer(request, seconds)
                connection.back.send(lambda: settle(answered, answer))

            door.work.put_nowait(work)

        connection.there.send(arrive)
        try:
            return await answered
        finally:
            connection.drop()

    def host_of(self, address: str) -> str:
        """Return the host that has an address."""
        return self.hosts.get(address, address)


def settle(future: asyncio.Future[Any], value: object = None) -> None:
    """Give a future its result, unless it has ended."""
    if not future.done():
        future.set_result(value)


def _refuse(future: asyncio.Future[Any], kind: type[OSError] = ConnectionResetError) -> None:
    if not future.done():
        future.set_exception(kind("no connection"))
        future.exception()
