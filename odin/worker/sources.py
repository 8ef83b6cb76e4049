"""Where tasks come from: RabbitMQ's queues, or, without a broker, frames of the engines."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from odin.core.tasks import ACTIVITY, WORKFLOW, TaskMessageError, decode_message
from odin.core.topology import task_queue as queue_for
from odin.core.wire import Receipt, Slots, Tasks
from odin.runtime.clock import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.core.wire import TaskEntry
    from odin.runtime.clock import Clock
    from odin.runtime.links import Link
    from odin.worker.book import TaskBook

ID_BUDGET_MIN: Final = 64
_SLOTS_SECONDS: Final = 0.05
_ADAPT_SECONDS: Final = 1.0
_DECAY: Final = 0.9

log = logging.getLogger(__name__)


class Ackable(Protocol):
    """What is to be acknowledged."""

    def ack(self) -> None:
        """Acknowledge; never fails."""
        ...


class Delivery(Ackable, Protocol):
    """A message of the broker."""

    body: bytes


class Taker(Protocol):
    """Who takes the tasks."""

    def take(self, delivery: Ackable | None, entries: Sequence[TaskEntry]) -> None:
        """Take the tasks that a message names."""
        ...


class Source(Protocol):
    """A transport of tasks."""

    async def run(self, stop: asyncio.Event) -> None:
        """Bring tasks until `stop` is set."""
        ...


class RabbitmqSource:
    """Consumes the queues of one task queue.

    The prefetch follows the size of the messages: it is the budget of ids in hand, divided by the
    mean number of ids in a message, so that a packed queue does not drown one worker.
    """

    def __init__(  # noqa: PLR0913 - a composition
        self,
        url: str,
        task_queue: str,
        kinds: Sequence[str],
        taker: Taker,
        *,
        id_budget: int,
        name: str,
        clock: Clock,
    ) -> None:
        # Only here: who runs without a broker need not have its client.
        from odin.runtime.rabbitmq import Consumer  # noqa: PLC0415 - see above

        self._taker = taker
        self._clock = clock
        self._budget = max(ID_BUDGET_MIN, id_budget)
        self._mean = 1.0
        queues = [queue_for(kind, task_queue) for kind in kinds]
        self._consumer = Consumer(
            url, queues, self._prefetch(), self._on_message, name=name, clock=clock
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._consumer.run(stop), name="consumer")
            while not await pause(self._clock, stop, _ADAPT_SECONDS):
                wanted, now = self._prefetch(), self._consumer.prefetch
                if wanted >= 2 * now or 2 * wanted <= now:  # a change costs a round trip
                    self._consumer.set_prefetch(wanted)

    def _prefetch(self) -> int:
        return max(1, int(self._budget // self._mean))

    def _on_message(self, delivery: Delivery) -> None:
        try:
            entries = decode_message(delivery.body)
        except TaskMessageError as error:
            log.warning("message names no task", extra={"reason": error.reason})
            delivery.ack()
            return
        self._mean = _DECAY * self._mean + (1 - _DECAY) * len(entries)
        self._taker.take(delivery, entries)


class EmbeddedSource:
    """Takes Tasks frames, answers each with a receipt, and announces free slots to the engines.

    An engine hands out no more than was announced. So that none of them has to wait for the next
    round, one that has used up half of what is free is told at once.
    """

    def __init__(
        self,
        book: TaskBook,
        links: Callable[[], list[Link]],
        taker: Taker,
        clock: Clock,
    ) -> None:
        self._book = book
        self._links = links
        self._taker = taker
        self._clock = clock
        self._left: dict[Link, _Left] = {}

    def tasks(self, link: Link, frame: Tasks) -> None:
        """Take a frame, or give it back when there is no room."""
        entries = frame.tasks
        activities = sum(entry.kind == ACTIVITY for entry in entries)
        workflows = len(entries) - activities
        taken = self._book.room(ACTIVITY) >= activities and self._book.room(WORKFLOW) >= workflows
        link.send(Receipt(frame.seq, taken))
        left = self._left.get(link)
        if left is not None:
            left.workflows -= workflows
            left.activities -= activities
        if taken:
            self._taker.take(None, entries)

    async def run(self, stop: asyncio.Event) -> None:
        """Announce the free slots whenever they have changed, at most 20 times a second."""
        while not await pause(self._clock, stop, _SLOTS_SECONDS):
            self._announce(_changed)
        for link in self._links():
            link.send(Slots(0, 0))

    def freed(self) -> None:
        """Something has been settled: tell the engines that may be waiting for it."""
        self._announce(_half_used)

    def _announce(self, needed: Callable[[_Left, int, int], bool]) -> None:
        workflows, activities = self._book.workflow_free, self._book.activity_free
        links = self._links()
        if len(self._left) > len(links):
            self._left = {link: self._left[link] for link in links if link in self._left}
        for link in links:
            left = self._left.get(link)
            if left is None or needed(left, workflows, activities):
                self._left[link] = _Left(workflows, activities)
                link.send(Slots(workflows, activities))


class _Left:
    """What an engine may still hand out, as far as it has been told."""

    __slots__ = ("activities", "workflows")

    def __init__(self, workflows: int, activities: int) -> None:
        self.workflows = workflows
        self.activities = activities


def _changed(left: _Left, workflows: int, activities: int) -> bool:
    return left.workflows != workflows or left.activities != activities


def _half_used(left: _Left, workflows: int, activities: int) -> bool:
    return 2 * left.workflows < workflows or 2 * left.activities < activities
