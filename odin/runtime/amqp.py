"""One connection to RabbitMQ, kept alive by a supervisor of our own.

The client library's self-mending connection hangs publishers while the broker is away, and does
not always come back. So: plain connections, short heartbeats, and this loop, which connects, runs
a session, and when that is over for any reason throws everything away and starts anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import aio_pika
from aiormq.abc import AbstractConnection as Connection

from odin.errors import OdinError, UnavailableError
from odin.runtime.clock import Clock, pause

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel as Channel

    from odin.core.topology import Queue

# The library gives a silent peer (heartbeat + 1) * 3 seconds: 18 s.
HEARTBEAT_SECONDS: Final = 5
CONNECT_SECONDS: Final = 5.0
RPC_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_BACKOFF_FIRST_SECONDS: Final = 0.1
_BACKOFF_SECONDS_MAX: Final = 5.0
_BACKOFF_DOUBLINGS_MAX: Final = 10

Session: TypeAlias = Callable[[Connection, asyncio.Event], Awaitable[None]]
Dice: TypeAlias = Callable[[], float]
"""A source of random numbers from 0 to 1."""

log = logging.getLogger(__name__)


class BrokerError(UnavailableError):
    """The connection to the broker, or a channel of it, is gone or does not answer."""

    reason = "BROKER_UNAVAILABLE"


@asynccontextmanager
async def broker_errors(what: str) -> AsyncIterator[None]:
    """Turn whatever the client library raises into BrokerError.

    A connection that ends makes the library throw many things into whoever waits for it, among
    them a CancelledError that nobody asked for; one that was asked for passes through.

    Raises:
        BrokerError: The block failed.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise BrokerError(f"{what}: the connection was closed") from error
    except OdinError:
        raise
    except Exception as error:  # the library rejects waiters with bare Exceptions too
        raise BrokerError(f"{what}: {type(error).__name__} {error}") from error


def is_cancelled() -> bool:
    """Return whether somebody asked the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def backoff_seconds(failures: int, dice: Dice) -> float:
    """Return the wait after so many failures in a row: random, doubling, at most 5 s."""
    doublings = min(max(failures - 1, 0), _BACKOFF_DOUBLINGS_MAX)
    ceiling = min(_BACKOFF_FIRST_SECONDS * 2.0**doublings, _BACKOFF_SECONDS_MAX)
    return ceiling * (0.5 + dice() / 2)


class ClosedByUs(aio_pika.Connection):
    """A connection that the collector leaves alone.

    aio_pika's own starts a task when a connection that was never closed is collected, and cannot
    where no loop runs at that moment. One that did not come about has nothing to close, and every
    other is closed by `SupervisedConnection`.
    """

    def __del__(self) -> None:
        """Do nothing."""


class SupervisedConnection:
    """Connects, runs a session on the connection, and again, until told to stop."""

    def __init__(self, url: str, name: str, clock: Clock, dice: Dice = random.random) -> None:
        """Take the address and the name that the broker's tools show for the connection."""
        self._url = url
        self._name = name
        self._clock = clock
        self._dice = dice
        self.connected = False
        self.connections_count = 0

    async def run(self, stop: asyncio.Event, session: Session) -> None:
        """Keep a session running until `stop` is set.

        Args:
            stop: Ends the loop.
            session: Called with a fresh connection and an event that is set when that connection
                is lost or `stop` is set; it returns soon after, or raises.
        """
        failures = 0
        while not stop.is_set():
            try:
                async with broker_errors("broker"), self._connection() as connection:
                    failures = 0
                    await self._session(connection, stop, session)
            except (BrokerError, BaseExceptionGroup) as error:
                if is_cancelled():
                    raise
                failures += 1
                if failures == 1:
                    log.warning(
                        "broker connection lost",
                        extra={"connection": self._name, "detail": _first_line(error)},
                    )
            # A session that ended without an error may have lost its connection at once, so that
            # the shortest wait holds for it as well.
            await pause(self._clock, stop, backoff_seconds(failures, self._dice))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """Connect, and close whatever happens within a bounded time."""
        opened = await aio_pika.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            heartbeat=HEARTBEAT_SECONDS,
            client_properties={"connection_name": self._name},
            connection_class=ClosedByUs,
        )
        try:
            if opened.transport is None:
                raise BrokerError("the connection was closed while it was opened")
            self.connected = True
            self.connections_count += 1
            log.info("broker connected", extra={"connection": self._name})
            yield opened.transport.connection
        finally:
            self.connected = False
            await _close(opened)

    async def _session(self, connection: Connection, stop: asyncio.Event, session: Session) -> None:
        ended = asyncio.Event()
        connection.closing.add_done_callback(lambda _: ended.set())

        async def end_with_stop() -> None:
            await stop.wait()
            ended.set()

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(end_with_stop(), name="broker stop")
            await session(connection, ended)
            watching.cancel()


async def declare(channel: Channel, queue: Queue) -> None:
    """Declare a durable queue, and the exchange that it is bound to if it has one.

    Raises:
        BrokerError: It exists with other arguments, or the broker does not answer. The channel is
            closed then.
    """
    async with broker_errors(f"declaring {queue.name}"):
        if queue.exchange is not None:
            await channel.exchange_declare(
                queue.exchange, exchange_type="fanout", durable=True, timeout=RPC_SECONDS
            )
        await channel.queue_declare(
            queue.name, durable=True, arguments=dict(queue.arguments), timeout=RPC_SECONDS
        )
        if queue.exchange is not None:
            await channel.queue_bind(queue.name, queue.exchange, timeout=RPC_SECONDS)


async def close_channel(channel: Channel) -> None:
    """Close a channel if it still is open; never fails, takes at most 2 s."""
    if channel.is_closed:
        return
    with suppress(BrokerError):
        async with broker_errors("closing"), asyncio.timeout(_CLOSE_SECONDS):
            await channel.close()


async def _close(connection: aio_pika.abc.AbstractConnection) -> None:
    with suppress(BrokerError):
        async with broker_errors("closing"), asyncio.timeout(_CLOSE_SECONDS):
            await connection.close()


def _first_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error).partition("\n")[0][:200]
