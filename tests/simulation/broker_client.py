"""The simulated broker's clients, at the interface of `odin.runtime.rabbitmq`.

`Publisher` stands in for `PublisherConnection`, `Consumer` for the consumer of the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from odin.core.topology import Queue, queue_of
from odin.errors import NotPublishedError
from odin.runtime.clock import Clock, pause
from tests.simulation.broker import HOST, PUBLISH_SECONDS, TAKEN, Message, QueueState
from tests.simulation.network import Connection, settle
from tests.simulation.process import here

CONNECT_SECONDS: Final = 5.0
HEARTBEAT_SECONDS: Final = 18.0
_AGAIN_SECONDS: Final = (0.1, 1.0)


class Client:
    """A supervised connection to the broker: opened, held, opened again, until told to stop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = here()
        self._broker = self._process.world.broker
        self.connection: Connection | None = None
        self.connections_count = 0

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.connection is not None

    async def hold(
        self, stop: asyncio.Event, begun: Callable[[Connection], None], over: Callable[[], None]
    ) -> None:
        """Keep a connection until `stop` is set."""
        dice = self._broker.network.random
        while not stop.is_set():
            ended = asyncio.Event()
            connection = await self._open(ended)
            if connection is not None:
                self.connection = connection
                self.connections_count += 1
                begun(connection)
                try:
                    await self._until_over(stop, ended)
                finally:
                    self.connection = None
                    over()
                    connection.reset()
            await pause(self._clock, stop, dice.uniform(*_AGAIN_SECONDS))

    async def _open(self, ended: asyncio.Event) -> Connection | None:
        network = self._broker.network
        connection = Connection(network, self._process, HOST)
        connection.lost.append(ended.set)
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            connection.back.send(lambda: settle(opened, self._broker.is_up))

        connection.there.send(arrive)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                is_open = await opened and connection.is_open
        except TimeoutError:
            is_open = False
        if not is_open:
            connection.reset()
        return connection if is_open else None

    async def _until_over(self, stop: asyncio.Event, ended: asyncio.Event) -> None:
        """Return when the connection has ended, by heartbeat if need be, or when told to stop."""
        network = self._broker.network
        path = (self._process.host, HOST)
        silent = 0.0

        def beat() -> None:
            nonlocal silent, timer  # type: ignore[misc] # bound below, before anything calls this
            is_cut = path in network.blocked or path[::-1] in network.blocked
            silent = silent + 1.0 if is_cut else 0.0
            if stop.is_set() or silent >= HEARTBEAT_SECONDS:
                ended.set()
            else:
                timer = self._clock.call_later(1.0, beat)

        if stop.is_set():
            return
        timer = self._clock.call_later(1.0, beat)
        try:
            await ended.wait()
        finally:
            timer.cancel()


class Publisher(Client):
    """Stands in for `PublisherConnection`."""

    def __init__(self, url: str, *, name: str = "", clock: Clock | None = None) -> None:
        del url, name
        super().__init__(clock or here().clock)
        self._usable = asyncio.Event()
        self._sent: dict[asyncio.Future[bool], None] = {}
        self.on_ready: Callable[[], None] | None = None
        self.blocked = False

    @property
    def healthy(self) -> bool:
        """Whether a publish would be sent now."""
        return self._usable.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the connection until `stop` is set."""
        await self.hold(stop, self._begun, self._over)

    async def publish(self, destination: str, body: bytes, message_id: str) -> None:
        """Publish one message and return once it is confirmed.

        Raises:
            NotPublishedError: No confirm; `maybe_sent` says whether it may have arrived.
        """
        sent = False
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._usable.wait()
                connection = self.connection
                if connection is None:
                    raise NotPublishedError("no connection to the broker")
                sent = True
                confirmed = await self._send(connection, destination, body, message_id)
        except TimeoutError as error:
            raise NotPublishedError("no confirm in time", maybe_sent=sent) from error
        if not confirmed:
            raise NotPublishedError("returned by the broker")

    async def _send(
        self, connection: Connection, destination: str, body: bytes, message_id: str
    ) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sent[answer] = None

        def confirm(how: int) -> None:
            connection.back.send(lambda: settle(answer, how == TAKEN))

        queue, message = queue_of(destination), Message(body, message_id)
        connection.there.send(lambda: self._broker.publish(queue, message, confirm))
        try:
            return await answer
        finally:
            self._sent.pop(answer, None)

    def _begun(self, connection: Connection) -> None:
        connection.lost.append(self._fail)
        self._usable.set()
        if self.on_ready is not None:
            self.on_ready()

    def _over(self) -> None:
        self._usable.clear()
        self._fail()

    def _fail(self) -> None:
        for answer in self._sent:
            if not answer.done():
                error = NotPublishedError("the connection was closed", maybe_sent=True)
                answer.set_exception(error)


@dataclass(slots=True, eq=False)
class Delivery:
    """One message, until it is acknowledged or comes again."""

    queue: str
    body: bytes
    message_id: str
    redelivered: bool
    headers: dict[str, object]
    subscription: Subscription
    message: Message

    def ack(self) -> None:
        """Acknowledge; it is lost if the subscription is over."""
        self.subscription.ack(self.message)


class Subscription:
    """One queue consumed over one connection; its state is the broker's."""

    def __init__(self, consumer: Consumer, state: QueueState, connection: Connection) -> None:
        self._consumer = consumer
        self._state = state
        self._connection = connection
        self._open: dict[Message, None] = {}
        self._acked: set[int] = set()
        self.is_over = False

    @property
    def has_room(self) -> bool:
        """Whether another message may be handed out."""
        return len(self._open) < self._consumer.prefetch

    def hand(self, message: Message) -> None:
        """Deliver a message."""
        self._open[message] = None
        delivery = Delivery(
            self._state.queue.name, message.body, message.message_id, message.deliveries > 0,
            dict(message.headers), self, message,
        )  # fmt: skip
        self._connection.back.send(lambda: self._consumer.inbox.put_nowait(delivery))

    def ack(self, message: Message) -> None:
        """The consumer is done with a message."""
        if self._connection.is_open:
            self._connection.there.send(lambda: self._acknowledged(message))

    def _acknowledged(self, message: Message) -> None:
        if not self.is_over:
            self._open.pop(message, None)
            self._consumer.broker.deliver(self._state)

    def end(self) -> None:
        """The connection is gone: what is open goes to others."""
        if self.is_over:
            return
        self.is_over = True
        if self in self._state.consumers:
            self._state.consumers.remove(self)
        self._consumer.broker.requeue(self._state, list(self._open))
        self._open.clear()


class Consumer(Client):
    """Stands in for the consumer of `odin.runtime.rabbitmq`."""

    def __init__(
        self,
        url: str,
        queues: Sequence[Queue],
        prefetch: int,
        on_message: Callable[[Delivery], None],
        *,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        del url, name
        super().__init__(clock or here().clock)
        self.broker = self._broker
        self._queues = tuple(queues)
        self._on_message = on_message
        self.prefetch = max(1, prefetch)
        self.inbox: asyncio.Queue[Delivery] = asyncio.Queue()
        self._subscriptions: list[Subscription] = []

    @property
    def healthy(self) -> bool:
        """Whether the queues are being consumed."""
        return self.connected

    def set_prefetch(self, prefetch: int) -> None:
        """Change how many messages per queue may be unacknowledged."""
        self.prefetch = max(1, prefetch)

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            handing = group.create_task(self._hand_on(), name="deliveries")
            await self.hold(stop, self._begun, lambda: None)
            handing.cancel()

    async def _hand_on(self) -> None:
        while True:
            delivery = await self.inbox.get()
            if not delivery.subscription.is_over:
                self._on_message(delivery)

    def _begun(self, connection: Connection) -> None:
        def arrive() -> None:
            for queue in self._queues:
                state = self.broker.declare(queue)
                subscription = Subscription(self, state, connection)
                connection.lost.append(subscription.end)
                state.consumers.append(subscription)
                self.broker.deliver(state)

        connection.there.send(arrive)
