"""The transport over RabbitMQ."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from odin.core.tasks import encode_message, parse_destination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.wire import TaskEntry
    from odin.runtime.rabbitmq import PublisherConnection


class RabbitTransport:
    """Publishes each pack as one persistent message to the quorum queue of its destination.

    Args:
        connection: Runs elsewhere; its `on_ready` is the composition root's to set.
        incarnation: Makes message ids unlike those of every other process.
    """

    def __init__(self, connection: PublisherConnection, incarnation: str) -> None:
        self._connection = connection
        self._incarnation = incarnation
        self._numbers = count(1)

    async def publish(self, destination: str, entries: Sequence[TaskEntry]) -> None:
        """Publish tasks of one destination; see `Transport`."""
        body = encode_message(parse_destination(destination).kind, entries)
        message_id = f"{self._incarnation}-{next(self._numbers)}"
        await self._connection.publish(destination, body, message_id)
