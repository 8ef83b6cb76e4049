"""Many look-ups in one query: the run that each request is for, what its id was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .connections import Connections
from .errors import DamagedRunError
from .rows import execution_or_damage, run_id_of
from .values import Lookup, StoredRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.execution import Execution

_REQUEST_COLUMNS = 4
_RUN_ID = 3
_NO_RUN = "00000000-0000-0000-0000-000000000000"


class Lookups(Connections):
    """Reads by workflow id and request id."""

    async def lookup_many(
        self, lookups: Sequence[Lookup]
    ) -> list[tuple[Execution | DamagedRunError | None, StoredRequest | None]]:
        """Return run and request of each look-up, in order; an error for a damaged run.

        Raises:
            UnavailableError: The database did not answer.
        """
        rows = await self._read(
            "lookup_many",
            [one.shard_id for one in lookups],
            [one.namespace for one in lookups],
            [one.workflow_id for one in lookups],
            [None if one.run_id is None else run_id_of(one.run_id) or _NO_RUN for one in lookups],
            [one.request_id for one in lookups],
        )
        found: list[tuple[Execution | DamagedRunError | None, StoredRequest | None]] = []
        for row in rows:
            request = StoredRequest(*row[:_REQUEST_COLUMNS]) if row[0] is not None else None
            columns = row[_REQUEST_COLUMNS:]
            execution = execution_or_damage(columns) if columns[_RUN_ID] is not None else None
            found.append((execution, request))
        return found
