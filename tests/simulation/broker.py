"""A model of RabbitMQ's quorum queues, at the interface that the relay and the workers use.

What a broker may do to a message it does here by the roll of `Mischief`: lose it before or after
the confirm, keep the confirm, deliver it twice or out of order, return it. A message that is not
acknowledged when its connection ends comes again, and is a dead letter after too many times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from odin.core.topology import DEAD_LETTERS, Queue
from tests.simulation.network import Network

if TYPE_CHECKING:
    from tests.simulation.broker_client import Subscription

HOST = "broker"
PUBLISH_SECONDS = 5.0
CONNECT_SECONDS = 5.0
HEARTBEAT_SECONDS = 18.0
TAKEN, RETURNED = 1, 0
_AGAIN_SECONDS = (0.1, 1.0)


@dataclass(slots=True)
class Mischief:
    """How likely each happening is, for one message."""

    lost: float = 0.0
    lost_after_confirm: float = 0.0
    unconfirmed: float = 0.0
    returned: float = 0.0
    twice: float = 0.0
    reordered: float = 0.0
    delayed: float = 0.0


@dataclass(slots=True, eq=False)
class Message:
    """One message in a queue."""

    body: bytes
    message_id: str
    deliveries: int = 0
    headers: dict[str, object] = field(default_factory=dict)


class QueueState:
    """One queue: what is ready, and who takes it."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ready: deque[Message] = deque()
        self.consumers: list[Subscription] = []

    @property
    def limit(self) -> int:
        """Redeliveries before a message is a dead letter."""
        return int(self.queue.arguments.get("x-delivery-limit", 20))


class Broker:
    """The broker; it lives outside of all processes.

    Attributes:
        is_up: Whether it takes connections.
        mischief: What it does to messages from now on.
        counts: Happenings by name.
    """

    def __init__(self, network: Network, random: Random) -> None:
        self.network = network
        self.random = random
        self.is_up = True
        self.mischief = Mischief()
        self.queues: dict[str, QueueState] = {}
        self.counts: dict[str, int] = {}

    def declare(self, queue: Queue) -> QueueState:
        """Return the queue; it is made if it is not there."""
        state = self.queues.get(queue.name)
        if state is None:
            state = self.queues[queue.name] = QueueState(queue)
        return state

    def publish(self, queue: Queue, message: Message, confirm: Callable[[int], None]) -> None:
        """Take a message, or do with it what a broker may; it is confirmed or comes back."""
        dice, odds = self.random, self.mischief
        state = self.declare(queue)
        if self._happens("returned", odds.returned):
            confirm(RETURNED)
            return
        if self._happens("lost", odds.lost):
            return
        if not self._happens("lost_after_confirm", odds.lost_after_confirm):
            copies = 2 if self._happens("twice", odds.twice) else 1
            for _ in range(copies):
                place = len(state.ready)
                if self._happens("reordered", odds.reordered):
                    place = dice.randint(0, place)
                state.ready.insert(place, Message(message.body, message.message_id))
        if self._happens("unconfirmed", odds.unconfirmed):
            pass
        elif self._happens("delayed", odds.delayed):
            wait = dice.uniform(0.1, 2 * PUBLISH_SECONDS)
            self.network.loop.call_later(wait, lambda: confirm(TAKEN), context=self.network.context)
        else:
            confirm(TAKEN)
        self.deliver(state)

    def deliver(self, state: QueueState) -> None:
        """Hand out what is ready to whoever has room, taking turns."""
        while state.ready:
            taker = next((one for one in state.consumers if one.has_room), None)
            if taker is None:
                return
            state.consumers.remove(taker)
            state.consumers.append(taker)
            taker.hand(state.ready.popleft())

    def requeue(self, state: QueueState, messages: Sequence[Message]) -> None:
        """Take back what was not acknowledged."""
        for message in reversed(messages):
            message.deliveries += 1
            if message.deliveries > state.limit:
                self._count("dead")
                self._die(message)
            else:
                self._count("redelivered")
                state.ready.appendleft(message)
        self.deliver(state)

    def lose_everything(self) -> int:
        """Lose all messages that wait (a majority of the replicas is gone for good)."""
        lost = sum(len(state.ready) for state in self.queues.values())
        for state in self.queues.values():
            state.ready.clear()
        return lost

    def stop(self) -> None:
        """End all connections and take none."""
        self.is_up = False
        for connection in list(self.network.connections):
            if connection.target == HOST:
                connection.reset()

    def start(self) -> None:
        """Take connections again; what waits is still there."""
        self.is_up = True

    def _die(self, message: Message) -> None:
        state = self.queues.get(DEAD_LETTERS)
        if state is not None:
            headers: dict[str, object] = {"x-first-death-reason": "delivery_limit"}
            state.ready.append(Message(message.body, message.message_id, headers=headers))
            self.deliver(state)

    def _happens(self, what: str, chance: float) -> bool:
        happens = chance > 0 and self.random.random() < chance
        if happens:
            self._count(what)
        return happens

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
