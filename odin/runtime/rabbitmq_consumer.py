"""The consuming side: queues whose messages are handed on, over a connection of its own.

One channel per queue, so that trouble with one queue redelivers nothing of another. A message that
is not acknowledged when its channel ends comes again; who takes it asks whether it is still wanted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from odin.runtime.amqp import (
    RPC_SECONDS,
    BrokerError,
    SupervisedConnection,
    backoff_seconds,
    broker_errors,
    close_channel,
    declare,
)
from odin.runtime.clock import Clock, SystemClock, pause
from odin.runtime.rabbitmq_dead import DeadQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiormq.abc import AbstractChannel as Channel
    from aiormq.abc import AbstractConnection as Connection
    from aiormq.abc import DeliveredMessage

    from odin.core.topology import Queue

WATCHDOG_SECONDS: Final = 10.0
_FAILURES_BEFORE_RECONNECT: Final = 3
# Checks in a row without a delivery after which a subscription is replaced. A queue that is deleted
# and made anew at once lists the old consumer and delivers into the void (seen with 3.10): nothing
# that the broker can be asked shows it.
_IDLE_CHECKS_MAX: Final = 3
_IDLE: Final = "idle"

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Delivery:
    """One message, until it is acknowledged or comes again."""

    queue: str
    body: bytes
    message_id: str
    redelivered: bool
    headers: Mapping[str, object]
    _subscription: _Subscription
    _tag: int

    def ack(self) -> None:
        """Acknowledge. Never fails: after a lost channel the message comes again, harmlessly."""
        self._subscription.ack(self._tag)

    @property
    def delivery_count(self) -> int:
        """How often the message was delivered before, as far as the broker counts it."""
        count = self.headers.get("x-delivery-count", 0)
        return count if isinstance(count, int) else 0


OnMessage: TypeAlias = "Callable[[Delivery], None]"


class Consumer:
    """Consumes queues until told to stop, whatever happens to connection, channels and queues.

    Args:
        url: amqp://user:password@host:port/vhost
        queues: What to consume; each is declared first.
        prefetch: Messages per queue that may be unacknowledged, at least 1.
        on_message: Called in the event loop for each message; it must not block, and keeps the
            delivery until it can be acknowledged. If it raises, the message comes again.
        name: The name that the broker's tools show.
    """

    def __init__(
        self,
        url: str,
        queues: Sequence[Queue],
        prefetch: int,
        on_message: OnMessage,
        *,
        name: str = "odin-consumer",
        clock: Clock | None = None,
    ) -> None:
        self._queues = tuple(queues)
        self._clock = clock or SystemClock()
        self._connection = SupervisedConnection(url, name, self._clock)
        self._subscriptions: dict[str, _Subscription] = {}
        self._dead = DeadQueues(self._clock)
        self.on_message = on_message
        self.watchdog_seconds = WATCHDOG_SECONDS
        self.prefetch = max(1, prefetch)

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connection.connected

    @property
    def healthy(self) -> bool:
        """Whether every queue is being consumed."""
        return len(self._subscriptions) == len(self._queues)

    @property
    def connections_count(self) -> int:
        """How many connections there have been."""
        return self._connection.connections_count

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many messages per queue may be unacknowledged, at least 1."""
        self.prefetch = max(1, prefetch)
        self._wake_all()

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set. Unacknowledged messages then go to others."""
        await self._connection.run(stop, self._session)

    async def _session(self, connection: Connection, ended: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for queue in self._queues:
                group.create_task(self._keep(connection, queue, ended), name=queue.name)
            await ended.wait()
            self._wake_all()

    def _wake_all(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.wake.set()

    async def _keep(self, connection: Connection, queue: Queue, ended: asyncio.Event) -> None:
        """Consume one queue; a channel that ends is replaced, trouble that lasts ends them all."""
        failures = 0
        while not ended.is_set():
            subscription = _Subscription(self, queue)
            try:
                channel = await _open(connection, queue)
                try:
                    await self._begin(subscription, channel, queue)
                    self._subscriptions[queue.name] = subscription
                    failures = 0
                    await subscription.serve(ended)
                finally:
                    self._subscriptions.pop(queue.name, None)
                    await close_channel(channel)
                if subscription.was_idle:
                    continue
            except BrokerError as error:
                failures += 1
                log.warning("consuming failed", extra={"queue": queue.name, "detail": str(error)})
                if failures >= _FAILURES_BEFORE_RECONNECT:
                    ended.set()
            await pause(self._clock, ended, backoff_seconds(failures, random.random))

    async def _begin(self, subscription: _Subscription, channel: Channel, queue: Queue) -> None:
        if self._dead.is_dead(queue.name):
            await self._dead.make_anew(channel, queue)
        try:
            await subscription.start(channel)
        except BrokerError as error:
            self._dead.refused(queue.name, error)
            raise
        self._dead.served(queue.name)


async def _open(connection: Connection, queue: Queue) -> Channel:
    async with broker_errors("opening a channel"):
        channel = await connection.channel(publisher_confirms=False, timeout=RPC_SECONDS)
    try:
        await declare(channel, queue)
    except BrokerError:
        await close_channel(channel)
        raise
    return channel


class _Subscription:
    """One queue consumed over one channel, from its declaration to the channel's end."""

    def __init__(self, consumer: Consumer, queue: Queue) -> None:
        self._consumer = consumer
        self._queue = queue
        self._channel: Channel | None = None
        self._consumer_tag = ""
        self._prefetch = 0
        # Delivery tags without an acknowledgement sent, in order; True: to be sent.
        self._open_tags: dict[int, bool] = {}
        self._to_ack: list[int] = []
        self._over: str | None = None
        self._idle_checks = 0
        self.wake = asyncio.Event()

    @property
    def was_idle(self) -> bool:
        """Whether it ended for want of deliveries and nothing else."""
        return self._over == _IDLE

    def ack(self, tag: int) -> None:
        """Note that a message is acknowledged; a repeat changes nothing."""
        if tag in self._open_tags and not self._open_tags[tag]:
            self._open_tags[tag] = True
            self._to_ack.append(tag)
            self.wake.set()

    async def start(self, channel: Channel) -> None:
        """Begin to consume.

        Raises:
            BrokerError: The broker refused, or did not answer.
        """
        self._channel = channel
        channel.closing.add_done_callback(lambda _: self._end("channel closed"))
        channel.on_consumer_cancel_callbacks.add(lambda _: self._end("cancelled by the broker"))
        await self._consume(channel)

    async def serve(self, ended: asyncio.Event) -> None:
        """Send acknowledgements and watch, until the channel or `ended` says that it is over.

        Raises:
            BrokerError: The broker does not answer any more.
        """
        channel = self._channel
        while channel is not None and self._over is None and not ended.is_set():
            if self._consumer.prefetch != self._prefetch:  # perhaps since before anybody served
                await self._consume(channel)
                continue
            try:
                async with asyncio.timeout(self._consumer.watchdog_seconds):
                    await self.wake.wait()
            except TimeoutError:
                await self._check(channel)
                continue
            self.wake.clear()
            await self._send_acks(channel)
        if self._over is not None and not ended.is_set():
            level = logging.DEBUG if self.was_idle else logging.WARNING
            log.log(
                level, "consuming anew", extra={"queue": self._queue.name, "detail": self._over}
            )

    def _end(self, why: str) -> None:
        self._over = self._over or why
        self.wake.set()

    async def _consume(self, channel: Channel) -> None:
        """Start a consumer with the prefetch of now, in place of the one before."""
        prefetch = self._consumer.prefetch
        async with broker_errors(f"consuming {self._queue.name}"):
            if self._consumer_tag:
                await channel.basic_cancel(self._consumer_tag, timeout=RPC_SECONDS)
            await channel.basic_qos(prefetch_count=prefetch, timeout=RPC_SECONDS)
            answer = await channel.basic_consume(
                self._queue.name, self._on_delivery, timeout=RPC_SECONDS
            )
        self._consumer_tag = answer.consumer_tag or ""
        self._prefetch = prefetch

    async def _on_delivery(self, message: DeliveredMessage) -> None:
        properties = message.header.properties
        tag = message.delivery_tag or 0
        self._open_tags[tag] = False
        self._idle_checks = 0
        delivery = Delivery(
            queue=self._queue.name,
            body=message.body,
            message_id=properties.message_id or "",
            redelivered=bool(message.redelivered),
            headers=properties.headers or {},
            _subscription=self,
            _tag=tag,
        )
        try:
            self._consumer.on_message(delivery)
        except Exception:  # the handler's fault must not cost a place in the window for ever
            log.exception("message handler failed", extra={"queue": self._queue.name})
            self._end("message handler failed")

    async def _send_acks(self, channel: Channel) -> None:
        """Send what was acknowledged: one frame for the oldest without a gap, one each for others.

        A failure is swallowed: these messages come again, and are not wanted any more then.
        """
        frames = self._ack_frames()
        try:
            async with broker_errors("acknowledging"), asyncio.timeout(RPC_SECONDS):
                for tag, multiple in frames:
                    await channel.basic_ack(tag, multiple, False)  # noqa: FBT003 - no drain
        except BrokerError as error:
            self._end(str(error))

    def _ack_frames(self) -> list[tuple[int, bool]]:
        frames: list[tuple[int, bool]] = []
        oldest = 0
        for tag, acked in self._open_tags.items():
            if not acked:
                break
            oldest = tag
        if oldest:
            frames.append((oldest, True))
        frames += [(tag, False) for tag in self._to_ack if tag > oldest]
        for tag in self._to_ack:
            del self._open_tags[tag]
        self._to_ack.clear()
        return frames

    async def _check(self, channel: Channel) -> None:
        """Ask the broker whether the queue is consumed; end this subscription if it looks dead."""
        self._idle_checks += 1
        if self._idle_checks >= _IDLE_CHECKS_MAX and not self._open_tags:
            self._end(_IDLE)
            return
        async with broker_errors(f"checking {self._queue.name}"):
            answer = await channel.queue_declare(
                self._queue.name, passive=True, timeout=RPC_SECONDS
            )
        if not answer.consumer_count:
            self._end("the broker knows no consumer")
