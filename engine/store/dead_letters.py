"""The trace that a dead letter leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.wire import TaskEntry


class DeadLetterRows(Nodes):
    """Appends evidence; under no fence, since nothing is decided by it."""

    async def record_dead_letters(self, entries: Sequence[TaskEntry], reason: str) -> None:
        """Note that the broker gave these tasks up.

        Raises:
            WriteRaisedError, OutcomeUnknownError: Noting it twice does no harm; try again.
        """
        await self._change(
            "record_dead_letters",
            [entry.shard_id for entry in entries],
            [entry.kind for entry in entries],
            [entry.run_id for entry in entries],
            [entry.number for entry in entries],
            [entry.attempt for entry in entries],
            reason,
        )
