"""RabbitMQ for odin: a connection that publishes and, apart from it, one that consumes.

Apart, because a broker that is short of memory stops reading from connections that publish: an
acknowledgement sent over the same one would wait behind the alarm.

A message counts as published once the broker has confirmed it: persistent, mandatory, into a
durable quorum queue. Everything else is NotPublishedError, and may yet have arrived.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aiormq.exceptions import DeliveryError, PublishError

from odin.core.topology import dead_letter_queue, queue_of
from odin.errors import NotPublishedError
from odin.runtime.amqp import (
    RPC_SECONDS,
    BrokerError,
    Dice,
    SupervisedConnection,
    broker_errors,
    close_channel,
    declare,
)
from odin.runtime.clock import Clock, SystemClock
from odin.runtime.rabbitmq_consumer import Consumer, Delivery
from odin.runtime.rabbitmq_line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiormq.abc import AbstractChannel as Channel
    from aiormq.abc import AbstractConnection as Connection

    from odin.core.topology import Queue

__all__ = ["BrokerError", "Consumer", "Delivery", "PublisherConnection"]

PUBLISH_SECONDS: Final = 5.0
# Messages on their way at once; more only lengthen the wait of each (measured).
OUTSTANDING_MAX: Final = 100
_ALARM_PROBE_SECONDS: Final = 0.2
_ALARM_CHECK_SECONDS: Final = 0.5
_DELETION_SECONDS: Final = 0.25

log = logging.getLogger(__name__)


class PublisherConnection:
    """Publishes task messages, with confirms, over one supervised connection.

    Args:
        url: amqp://user:password@host:port/vhost
        name: The name that the broker's tools show.
        publish_seconds: How long one publish may take, waiting for a connection included.
        on_ready: Called each time that publishing is possible again (connected, alarm over).
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "odin-publisher",
        clock: Clock | None = None,
        dice: Dice = random.random,
        publish_seconds: float = PUBLISH_SECONDS,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._connection = SupervisedConnection(url, name, self._clock, dice)
        self._publish_seconds = publish_seconds
        self._slots = asyncio.Semaphore(OUTSTANDING_MAX)
        self._usable = asyncio.Event()
        self._channels: _Channels | None = None
        self.on_ready = on_ready
        self.blocked = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection with an open channel."""
        return self._channels is not None

    @property
    def healthy(self) -> bool:
        """Whether a publish would be sent now: connected, and no alarm at the broker."""
        return self._usable.is_set()

    @property
    def connections_count(self) -> int:
        """How many connections there have been."""
        return self._connection.connections_count

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the connection until `stop` is set."""
        await self._connection.run(stop, self._session)

    async def until_ready(self) -> None:
        """Return once publishing is possible."""
        await self._usable.wait()

    async def publish(self, destination: str, body: bytes, message_id: str) -> None:
        """Publish one message and return once the broker has confirmed it.

        The queue is declared on first use, and again when the message comes back because it is
        gone.

        Args:
            destination: The outbox destination, "w:<task_queue>" or "a:<task_queue>".
            body: At most 64 KiB.
            message_id: Unlike that of every other message on its way.

        Raises:
            NotPublishedError: No confirm; `maybe_sent` says whether it may have arrived.
        """
        sending = _Sending(destination, body, message_id)
        try:
            async with asyncio.timeout(self._publish_seconds) as deadline, self._slots:
                await self._usable.wait()
                channels = self._channels
                if channels is None:
                    raise NotPublishedError("no connection to the broker")
                with channels.until_closed(deadline):
                    await channels.publish(sending)
        except TimeoutError as error:
            raise NotPublishedError(
                "no confirm: broker alarm" if self.blocked else "no confirm in time",
                maybe_sent=sending.maybe_sent,
            ) from error

    async def _session(self, connection: Connection, ended: asyncio.Event) -> None:
        channel = await connection.channel(
            publisher_confirms=True, on_return_raises=True, timeout=RPC_SECONDS
        )
        channel.closing.add_done_callback(lambda _: ended.set())
        channels = self._channels = _Channels(connection, channel)
        self._set_blocked(blocked=False)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch_alarm(connection), name="broker alarm")
                await ended.wait()
                watching.cancel()
        finally:
            self._usable.clear()
            self._channels = None
            self.blocked = False
            channels.closed()

    async def _watch_alarm(self, connection: Connection) -> None:
        """Follow the broker's alarm: the library has no callback, only a wait until it is over."""
        while True:
            try:
                async with asyncio.timeout(_ALARM_PROBE_SECONDS):
                    await connection.ready()
            except TimeoutError:
                self._set_blocked(blocked=True)
                log.warning("broker alarm: publishing waits")
                await connection.ready()
                self._set_blocked(blocked=False)
            await self._clock.sleep(_ALARM_CHECK_SECONDS)

    def _set_blocked(self, *, blocked: bool) -> None:
        self.blocked = blocked
        if blocked:
            self._usable.clear()
            return
        self._usable.set()
        if self.on_ready is not None:
            self.on_ready()


class _Sending:
    """One message on its way, and how far it has come."""

    __slots__ = ("body", "destination", "maybe_sent", "message_id")

    def __init__(self, destination: str, body: bytes, message_id: str) -> None:
        self.destination = destination
        self.body = body
        self.message_id = message_id
        self.maybe_sent = False


class _Channels:
    """The channels of one connection: one that publishes, one that declares.

    Apart, because a declaration that the broker refuses closes its channel, and with it every
    message on its way there.
    """

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self._connection = connection
        self._line = Line(channel)
        self._declaring: Channel | None = None
        self._declare_lock = asyncio.Lock()
        self._declared: dict[str, Queue] = {}
        self._deadlines: set[asyncio.Timeout] = set()

    @contextmanager
    def until_closed(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Let the deadline end the block as soon as the connection has ended.

        The library leaves those waiting that declare a queue, or are about to.
        """
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    def closed(self) -> None:
        """The connection has ended: nothing more will come of what is on its way."""
        self._line.end()
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(now)

    async def publish(self, sending: _Sending) -> None:
        """Publish once, and once more if the message comes back or is refused.

        Raises:
            NotPublishedError: Returned or refused twice, or the connection ended.
        """
        queue = await self._queue_of(sending.destination)
        try:
            await self._send(sending, queue)
        except DeliveryError:
            # The queue is gone, or about to be. One that is made anew before the broker has told
            # the consumers of the old one never delivers to them (seen with 3.10): wait for that.
            await asyncio.sleep(_DELETION_SECONDS)
            await self._declare_again(sending.destination, queue)
            try:
                await self._send(sending, queue)
            except DeliveryError as error:
                how = "returned" if isinstance(error, PublishError) else "refused"
                raise NotPublishedError(f"{how} by the broker: {queue.name}") from error

    async def _send(self, sending: _Sending, queue: Queue) -> None:
        sending.maybe_sent = True
        try:
            await self._line.publish(queue.name, sending.body, sending.message_id)
        except DeliveryError:
            sending.maybe_sent = False
            raise

    async def _queue_of(self, destination: str) -> Queue:
        queue = self._declared.get(destination)
        if queue is None:
            queue = queue_of(destination)
            await self._declare(destination, queue)
        return queue

    async def _declare_again(self, destination: str, failed: Queue) -> None:
        """Declare a queue that was declared, once for all messages that met its absence."""
        if self._declared.get(destination) is failed:
            del self._declared[destination]
        await self._declare(destination, dataclasses.replace(failed))

    async def _declare(self, destination: str, queue: Queue) -> None:
        async with self._declare_lock:
            if destination in self._declared:
                return
            try:
                channel = await self._declaring_channel()
                await declare(channel, queue)
            except BrokerError as error:
                raise NotPublishedError(str(error)) from error
            self._declared[destination] = queue

    async def _declaring_channel(self) -> Channel:
        if self._declaring is not None and not self._declaring.is_closed:
            return self._declaring
        async with broker_errors("opening a channel"):
            channel = await self._connection.channel(publisher_confirms=False, timeout=RPC_SECONDS)
        try:
            # Without it the broker would drop dead letters.
            await declare(channel, dead_letter_queue())
        except BrokerError:
            await close_channel(channel)
            raise
        self._declaring = channel
        return channel
