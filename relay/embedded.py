"""The transport without a broker: tasks go over the links that workers hold to this engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from odin.core.tasks import parse_destination
from odin.core.wire import TaskEntry
from odin.errors import NotPublishedError

Push: TypeAlias = Callable[[str, str, Sequence[TaskEntry]], Awaitable[bool]]
"""(task_queue, kind, entries): whether a worker with free slots has taken them."""

_RECEIPT_SECONDS: Final = 5.0


class EmbeddedTransport:
    """Hands each pack to a worker that serves the queue and has announced free slots.

    Args:
        push: Sends a Tasks frame to such a worker and waits for its receipt; False at once if
            there is none. A link that is lost meanwhile raises, or never answers.
        receipt_seconds: How long a receipt may take.
    """

    def __init__(self, push: Push, receipt_seconds: float = _RECEIPT_SECONDS) -> None:
        self._push = push
        self._receipt_seconds = receipt_seconds

    async def publish(self, destination: str, entries: Sequence[TaskEntry]) -> None:
        """Publish tasks of one destination; see `Transport`."""
        where = parse_destination(destination)
        try:
            async with asyncio.timeout(self._receipt_seconds):
                taken = await self._push(where.task_queue, where.kind, entries)
        except TimeoutError as error:
            raise NotPublishedError("no receipt from the worker", maybe_sent=True) from error
        except Exception as error:  # whatever a link throws: the receipt has not come
            raise NotPublishedError(
                f"the link failed: {type(error).__name__}", maybe_sent=True
            ) from error
        if not taken:
            raise NotPublishedError(f"no worker with free slots serves {destination}")
