"""A queue that the broker knows and that nobody can use: it is made anew.

RabbitMQ writes what it knows of queues some two seconds late. Killed in this time after a queue was
first declared, it forgets the queue and keeps its log: declared again, the queue is there, and
neither takes nor gives a message, for ever (seen with 3.10, and brought about in the tests).
Deleting it helps. What it held is lost to the broker and to nobody else: tasks live in Postgres,
and one that nobody has claimed is published again when it is due.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiormq.exceptions import ConnectionInternalError

from odin.runtime.amqp import RPC_SECONDS, broker_errors, declare

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel as Channel

    from odin.core.topology import Queue
    from odin.runtime.amqp import BrokerError
    from odin.runtime.clock import Clock

REFUSALS: Final = 3
REFUSED_SECONDS: Final = 10.0
"""So often in a row, over so long, a queue is declared and not served before it is made anew."""
DELETE_SECONDS: Final = 30.0
# What it looks like: no answer, or the broker's own failure. No right to consume is none of these.
_SIGNS: Final = (TimeoutError, ConnectionInternalError)

log = logging.getLogger(__name__)


class DeadQueues:
    """Tells a queue that is dead from one that is refused for another reason, or for a moment.

    Args:
        clock: Measures how long a queue has been refused.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, tuple[float, int]] = {}  # queue → since when, how often

    def served(self, queue: str) -> None:
        """The queue is consumed."""
        self._refused.pop(queue, None)

    def refused(self, queue: str, error: BrokerError) -> None:
        """The broker has declared the queue just now, and has not let it be consumed."""
        if not isinstance(error.__cause__, _SIGNS):
            self._refused.pop(queue, None)
            return
        since, times = self._refused.get(queue, (self._clock.boottime(), 0))
        self._refused[queue] = since, times + 1

    def is_dead(self, queue: str) -> bool:
        """Return whether the queue has been refused for long enough to be made anew."""
        since, times = self._refused.get(queue, (0.0, 0))
        return times >= REFUSALS and self._clock.boottime() - since >= REFUSED_SECONDS

    async def make_anew(self, channel: Channel, queue: Queue) -> None:
        """Delete a dead queue and declare it again, unless somebody consumes it by now.

        Two that do so at once, or one that ends in between, cost time and nothing else: whoever
        consumes or publishes next declares the queue, and what it held comes again.

        Raises:
            BrokerError: The broker refused, or did not answer.
        """
        self._refused.pop(queue.name, None)
        async with broker_errors(f"making {queue.name} anew"):
            found = await channel.queue_declare(queue.name, passive=True, timeout=RPC_SECONDS)
            if found.consumer_count:
                return
            log.warning("queue is dead, made anew", extra={"queue": queue.name})
            await channel.queue_delete(queue.name, timeout=DELETE_SECONDS)
        await declare(channel, queue)
