"""The queues at the broker: their names and arguments, the same for RabbitMQ 3.10 and 4.x.

    default exchange ──▶ odin.workflow.<task_queue>  quorum ─┐ (delivery limit)
                     ──▶ odin.activity.<task_queue>  quorum ─┴▶ odin.dead ─▶ odin.dead

Defaults differ between versions of the broker (3.10 has no delivery limit at all, 4.x one of 20),
so that every argument is stated. A dead letter is no lost task: Postgres still holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odin.core.tasks import ACTIVITY, WORKFLOW, parse_destination

if TYPE_CHECKING:
    from collections.abc import Mapping

DEAD_LETTERS: Final = "odin.dead"
"""The name of the dead-letter exchange (fanout) and of the one queue bound to it."""

DELIVERY_LIMIT: Final = 20
"""Redeliveries of one message before it is a dead letter.

A worker that crashes spends one of each message in its prefetch window, innocent ones too; the
limit is there for a broken consumer, while attempts are counted in Postgres.
"""

# Of dead letters the newest count. The limit of redeliveries is out of reach on purpose: their
# consumer may crash for a long time before somebody mends it.
_DEAD_LETTERS_MAX: Final = 100_000
_DEAD_DELIVERY_LIMIT: Final = 1_000_000

_PREFIXES: Final = {WORKFLOW: "odin.workflow.", ACTIVITY: "odin.activity."}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is declared: durable, with exactly these arguments.

    `exchange` names the fanout exchange that it is bound to, if any beside the default one.
    """

    name: str
    arguments: Mapping[str, str | int] = field(default_factory=dict)
    exchange: str | None = None


def queue_name(kind: str, task_queue: str) -> str:
    """Return the name of the queue for tasks of `kind` ("w" or "a") of a task queue."""
    return f"{_PREFIXES[kind]}{task_queue}"


def task_queue(kind: str, task_queue: str) -> Queue:
    """Return the queue for tasks of `kind` ("w" or "a") of a task queue."""
    return Queue(
        queue_name(kind, task_queue),
        {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": DEAD_LETTERS,
            # At-least-once dead-lettering is only allowed together with reject-publish.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )


def queue_of(destination: str) -> Queue:
    """Return the queue that rows of an outbox destination go to.

    Raises:
        InvalidArgumentError: The destination is not a task queue.
    """
    parsed = parse_destination(destination)
    return task_queue(parsed.kind, parsed.task_queue)


def dead_letter_queue() -> Queue:
    """Return the queue that every dead letter ends in."""
    return Queue(
        DEAD_LETTERS,
        {
            "x-queue-type": "quorum",
            "x-delivery-limit": _DEAD_DELIVERY_LIMIT,
            "x-max-length": _DEAD_LETTERS_MAX,
            "x-overflow": "drop-head",
        },
        exchange=DEAD_LETTERS,
    )
