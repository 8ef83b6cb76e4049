"""What an owner reads of its shards. Read only after the acquisition of the term has returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .connections import Connections
from .errors import DamagedRunError
from .rows import event_of, execution_of, execution_or_damage, run_id_of
from .values import OutboxRow, StoredRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from odin.core.events import HistoryEvent
    from odin.core.execution import Execution

FIRST_RUN_ID: Final = "00000000-0000-0000-0000-000000000000"
"""Below every run id: the cursor of a first page."""
EVENT_ID_MAX: Final = 2**31 - 1
PAGE_BYTES: Final = 1_000_000
_RUN_ID: Final = 3


class Reads(Connections):
    """Reads by shard. Each raises UnavailableError if the database does not answer."""

    async def load_execution(self, shard_id: int, run_id: str) -> Execution | None:
        """Return the run, or None if there is none."""
        if (wanted := run_id_of(run_id)) is None:
            return None
        row = await self._read_row("load_execution", shard_id, wanted)
        return execution_of(row) if row is not None else None

    async def load_many(
        self, runs: Collection[tuple[int, str]]
    ) -> dict[str, Execution | DamagedRunError]:
        """Return the runs (shard, run id) that exist, by run id; an error for a damaged one."""
        wanted = [(shard_id, text) for shard_id, run_id in runs if (text := run_id_of(run_id))]
        rows = await self._read(
            "load_many", [shard_id for shard_id, _ in wanted], [run_id for _, run_id in wanted]
        )
        return {row[_RUN_ID]: execution_or_damage(row) for row in rows}

    async def load_open(self, shard_id: int, namespace: str, workflow_id: str) -> Execution | None:
        """Return the open run of the workflow id, or None."""
        row = await self._read_row("load_open", shard_id, namespace, workflow_id)
        return execution_of(row) if row is not None else None

    async def load_latest(
        self, shard_id: int, namespace: str, workflow_id: str
    ) -> Execution | None:
        """Return the open run of the workflow id, else its newest one, or None."""
        row = await self._read_row("load_latest", shard_id, namespace, workflow_id)
        return execution_of(row) if row is not None else None

    async def load_request(
        self, shard_id: int, namespace: str, workflow_id: str, request_id: str
    ) -> StoredRequest | None:
        """Return what was acknowledged under the request id, or None."""
        row = await self._read_row("load_request", shard_id, namespace, workflow_id, request_id)
        return StoredRequest(*row) if row is not None else None

    async def events(
        self,
        shard_id: int,
        run_id: str,
        *,
        after: int = 0,
        upto: int = EVENT_ID_MAX,
        limit: int = 1_000,
        bytes_max: int = PAGE_BYTES,
    ) -> list[HistoryEvent]:
        """Return a page of the history, oldest first.

        Args:
            shard_id: The shard.
            run_id: The run.
            after: The event id before the first one wanted.
            upto: The last event id wanted.
            limit: Events at most.
            bytes_max: Bytes of attributes at most; a single larger event comes alone.
        """
        if (wanted := run_id_of(run_id)) is None:
            return []
        rows = await self._read("events", shard_id, wanted, after, upto, limit, bytes_max)
        return [event_of(row) for row in rows]

    async def due_before(
        self,
        shard_ids: Sequence[int],
        us: int,
        limit: int,
        *,
        after: tuple[int, str] = (-1, FIRST_RUN_ID),
    ) -> list[tuple[int, str, int]]:
        """Return (shard, run id, due_us) of runs that may have something due by `us`, by time.

        What is stored is a lower bound: if nothing of the run is due, write its image again, which
        moves the bound.

        Args:
            shard_ids: The shards.
            us: The instant.
            limit: Runs at most.
            after: (due_us, run id) of the last run of the page before.
        """
        rows = await self._read("due_before", shard_ids, us, after[0], after[1], limit)
        return [(row[0], row[1], row[2]) for row in rows]

    async def scheduled_tasks(
        self, shard_id: int, *, after: str = FIRST_RUN_ID, limit: int = 100
    ) -> list[str]:
        """Return the ids of open runs with a task that waits to be taken, from after `after` on."""
        rows = await self._read("scheduled_tasks", shard_id, after, limit)
        return [row[0] for row in rows]

    async def outbox_due(self, shard_ids: Sequence[int], us: int, limit: int) -> list[OutboxRow]:
        """Return outbox rows that may be published again by `us`, longest waiting first."""
        rows = await self._read("outbox_due", shard_ids, us, limit)
        return [OutboxRow(*row) for row in rows]

    async def outbox_all(
        self, shard_id: int, *, after: int = 0, limit: int = 10_000
    ) -> list[OutboxRow]:
        """Return the outbox rows that a new owner inherits, by id, from after `after` on."""
        rows = await self._read("outbox_all", shard_id, after, limit)
        return [OutboxRow(*row) for row in rows]
