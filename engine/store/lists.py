"""What the API reads: no term and no lease is needed for any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .connections import Connections
from .reads import EVENT_ID_MAX, FIRST_RUN_ID, PAGE_BYTES
from .rows import event_of, execution_of, run_id_of
from .values import ExecutionFilter, ExecutionSummary

if TYPE_CHECKING:
    from odin.core.events import HistoryEvent
    from odin.core.execution import Execution

OUTBOX_COUNTED_MAX: Final = 100_000
EVERYTHING: Final = ExecutionFilter()


class Lists(Connections):
    """Reads across shards. Each raises UnavailableError if the database does not answer."""

    async def describe(
        self, shard_id: int, namespace: str, workflow_id: str, run_id: str | None = None
    ) -> Execution | None:
        """Return the run; without a run id the open or else the newest run of the workflow id."""
        if run_id is None:
            row = await self._read_row("load_latest", shard_id, namespace, workflow_id)
            return execution_of(row) if row is not None else None
        if (wanted := run_id_of(run_id)) is None:
            return None
        row = await self._read_row("load_execution", shard_id, wanted)
        found = execution_of(row) if row is not None else None
        if found is None or (found.namespace, found.workflow_id) != (namespace, workflow_id):
            return None
        return found

    async def list_executions(
        self,
        wanted: ExecutionFilter = EVERYTHING,
        *,
        before: tuple[int, str] | None = None,
        shard_id: int | None = None,
        limit: int = 50,
    ) -> list[ExecutionSummary]:
        """Return executions, newest start first.

        Args:
            wanted: What the list is narrowed to.
            before: (started_us, run_id) of the last line of the page before.
            shard_id: Only this shard; give it together with `wanted.workflow_id`.
            limit: Lines at most.
        """
        started_us, run_id = before or (None, FIRST_RUN_ID)
        rows = await self._read(
            "list_executions",
            wanted.namespace,
            wanted.status,
            wanted.workflow_type,
            shard_id,
            wanted.workflow_id,
            wanted.origin,
            wanted.started_from_us,
            wanted.started_before_us,
            started_us,
            run_id,
            limit,
        )
        return [ExecutionSummary(*row) for row in rows]

    async def events_newest_first(
        self,
        shard_id: int,
        run_id: str,
        *,
        before: int = EVENT_ID_MAX,
        limit: int = 100,
        bytes_max: int = PAGE_BYTES,
    ) -> list[HistoryEvent]:
        """Return a page of the history, newest first, from before event id `before` on."""
        if (wanted := run_id_of(run_id)) is None:
            return []
        rows = await self._read("events_newest_first", shard_id, wanted, before, limit, bytes_max)
        return [event_of(row) for row in rows]

    async def open_counts(self) -> dict[int, int]:
        """Return how many runs are open in each shard that has any."""
        return {row[0]: row[1] for row in await self._read("open_counts")}

    async def outbox_counts(self) -> dict[int, int]:
        """Return how many outbox rows wait in each shard; no more than 100,000 are counted."""
        rows = await self._read("outbox_counts", OUTBOX_COUNTED_MAX)
        return {row[0]: row[1] for row in rows}

    async def table_estimates(self) -> dict[str, int]:
        """Return about how many rows the large tables have."""
        return {row[0]: row[1] for row in await self._read("table_estimates")}
