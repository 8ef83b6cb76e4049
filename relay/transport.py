"""What the relay is given, and what it hands rows to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.wire import TaskEntry


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An outbox row that has committed.

    Args:
        range_id: Of the term in which the row was written or read, and that its confirm belongs to.
        destination: "w:<task_queue>" or "a:<task_queue>"; others are not the relay's.
        publish_count: How often it was published without a confirm.
        created_us: When it was inserted, by the cluster's clock.
    """

    shard_id: int
    outbox_id: int
    range_id: int
    destination: str
    entry: TaskEntry
    publish_count: int
    created_us: int


class Transport(Protocol):
    """Carries tasks to workers."""

    async def publish(self, destination: str, entries: Sequence[TaskEntry]) -> None:
        """Publish tasks of one destination as one message; return once that is confirmed.

        Raises:
            NotPublishedError: There is no confirm; `maybe_sent` says whether it may have arrived.
        """
        ...
