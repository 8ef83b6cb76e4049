"""Takes dead letters off their queue, so that each leaves a trace in Postgres."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from odin.core.payload import clean_text
from odin.core.tasks import TaskMessageError, decode_message
from odin.core.topology import dead_letter_queue
from odin.core.wire import TaskEntry
from odin.errors import OdinError
from odin.runtime.rabbitmq import Consumer, Delivery

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

Dead: TypeAlias = Callable[[Sequence[TaskEntry], str], Awaitable[None]]
"""(entries, reason): record that the broker gave these tasks up ("delivery_limit", ...)."""

_PREFETCH: Final = 16
_REFUSALS_MAX: Final = 5
_REASON_CHARS_MAX: Final = 200
_RETRY_SECONDS_FIRST: Final = 1.0
_RETRY_SECONDS_MAX: Final = 30.0

log = logging.getLogger(__name__)


class DeadLetters:
    """Hands each dead letter to the engine and acknowledges it after that.

    Several engines may do so at once: each letter goes to one of them, or, if that one dies, to
    another once more. A letter that names no tasks is logged, counted and acknowledged.

    Args:
        url: amqp://user:password@host:port/vhost
        dead: The engine's callable; while it fails, the letters stay at the broker.
        clock: Measures the waits.
    """

    def __init__(self, url: str, dead: Dead, clock: Clock) -> None:
        self._dead = dead
        self._clock = clock
        self._taken: asyncio.Queue[Delivery] = asyncio.Queue()
        self._consumer = Consumer(
            url,
            [dead_letter_queue()],
            _PREFETCH,
            self._taken.put_nowait,
            name="odin-dead-letters",
            clock=clock,
        )
        self.handed_over = 0
        self.damaged = 0

    @property
    def healthy(self) -> bool:
        """Whether the queue is being consumed."""
        return self._consumer.healthy

    async def run(self, stop: asyncio.Event) -> None:
        """Hand dead letters over until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            handing = group.create_task(self._hand_over(), name="dead letters")
            await self._consumer.run(stop)
            handing.cancel()

    async def _hand_over(self) -> None:
        while True:
            delivery = await self._taken.get()
            try:
                entries = decode_message(delivery.body)
            except TaskMessageError as error:
                self.damaged += 1
                log.warning("dead letter names no tasks", extra={"detail": error.reason})
            else:
                await self._tell(entries, reason_of(delivery.headers))
            delivery.ack()

    async def _tell(self, entries: Sequence[TaskEntry], reason: str) -> None:
        """Have the letter recorded, however long that takes, unless it can never be."""
        wait = _RETRY_SECONDS_FIRST
        refusals = 0
        while True:
            try:
                await self._dead(entries, reason)
            except Exception as error:  # whatever the engine throws: try again
                if wait == _RETRY_SECONDS_FIRST:
                    log.exception("dead letters cannot be recorded")
                refusals += isinstance(error, OdinError) and not error.retryable
                if refusals >= _REFUSALS_MAX:  # it would keep those behind it waiting for ever
                    self.damaged += 1
                    log.error(  # noqa: TRY400 - the stack stands in the log already
                        "dead letter given up", extra={"tasks": len(entries), "reason": reason}
                    )
                    return
                await self._clock.sleep(wait)
                wait = min(2 * wait, _RETRY_SECONDS_MAX)
            else:
                self.handed_over += 1
                return


def reason_of(headers: Mapping[str, object]) -> str:
    """Return why the broker gave a message up: delivery_limit, rejected, expired, or unknown."""
    first = headers.get("x-first-death-reason")
    if isinstance(first, str):
        return clean_text(first, _REASON_CHARS_MAX)
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        return clean_text(str(deaths[0].get("reason", "unknown")), _REASON_CHARS_MAX)
    return "unknown"
