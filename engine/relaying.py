"""The relay inside the engine.

Resolved by name, wired to the outbox and the hub, run as loops of the node.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from odin.core.wire import TaskEntry
from odin.runtime.clock import Clock
from odin.runtime.rabbitmq import PublisherConnection
from odin.runtime.services import module_of

if TYPE_CHECKING:
    from odin.runtime.service import Loop

    from .node import Node

log = logging.getLogger(__name__)


@cache
def relay_module(name: str) -> Any:  # noqa: ANN401 - resolved at run time, see the layer rule
    """Return a module of the relay package, wherever this installation has it."""
    return importlib.import_module(f"{module_of('relay')}.{name}")


class Relay:
    """The publisher, the sweep and the dead letters of one node.

    Args:
        node: The node whose outbox is published.
        clock: Measures the waits.
        amqp_url: The broker; "" for the embedded transport over the workers' links.
    """

    def __init__(self, node: Node, clock: Clock, amqp_url: str) -> None:
        self._node = node
        self._is_embedded = not amqp_url
        self._loops: dict[str, Loop] = {}
        incarnation = node.membership.incarnation
        if amqp_url:
            connection = PublisherConnection(amqp_url, name=f"odin-engine-{incarnation}")
            transport = relay_module("rabbit").RabbitTransport(connection, incarnation)
            dead = relay_module("dead_letters").DeadLetters(amqp_url, self._dead, clock)
            self._loops["amqp"] = connection.run
            self._loops["dead letters"] = dead.run
        else:
            connection = None
            transport = relay_module("embedded").EmbeddedTransport(node.hub.push_tasks)
        publisher = relay_module("publisher")
        callables = publisher.Callables(
            confirmed=node.outbox.confirmed,
            delayed=node.outbox.delayed,
            workers=self._workers,
            now_us=node.shards.now_us,
        )
        self.publisher = publisher.Publisher(transport, callables, clock)
        self.sweeper = relay_module("sweep").Sweeper(
            self.publisher,
            node.outbox.read_all,
            node.outbox.read_due,
            node.shards.now_us,
            clock,
        )
        if connection is not None:
            connection.on_ready = self.publisher.wake
        node.outbox.publisher = self.publisher
        node.sweeper = self.sweeper
        node.relay = self
        node.hub.on_slots = self.publisher.wake
        self._loops["publisher"] = self.publisher.run
        self._loops["sweeper"] = self.sweeper.run

    def _workers(self, destination: str) -> int:
        """Return how many workers serve a destination for each engine that publishes to it.

        A worker is linked to every engine and takes from all of them: with the whole number, three
        engines with a third of the rows each would hardly pack at all.
        """
        engines = max(1, len(self._node.ownership.entries()))
        return math.ceil(self._node.sessions.count(destination) / engines)

    def loops(self) -> dict[str, Loop]:
        """Return the relay's loops."""
        return self._loops

    @property
    def depth(self) -> int:
        """Rows that are not confirmed."""
        return int(self.publisher.depth)

    @property
    def oldest_age_ms(self) -> int:
        """How long the oldest of them waits that a worker could take.

        Without a broker a task stays a row until a worker takes it. One start on a task queue that
        nobody serves must not shut the door to all others.
        """
        return int(self.publisher.oldest_age_ms(self._is_served))

    def _is_served(self, destination: str) -> bool:
        return not self._is_embedded or self._node.sessions.count(destination) > 0

    @property
    def message_count(self) -> int:
        """Messages sent so far."""
        return int(self.publisher.counters.messages)

    async def _dead(self, entries: Sequence[TaskEntry], reason: str) -> None:
        """The broker has given these up: leave a trace. Their due instants bring them back."""
        log.warning("dead letter", extra={"reason": reason, "tasks": len(entries)})
        await self._node.store.record_dead_letters(entries, reason)
