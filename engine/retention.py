"""Closed runs go after a while: paced, a bounded batch of one shard at a time, under the fence."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from odin.errors import NotOwnerError, OdinError
from odin.runtime.clock import pause

from .shards import Shards
from .term import Term

log = logging.getLogger(__name__)

BATCH: Final = 100
ROUND_SECONDS: Final = 20.0
BATCH_PAUSE_SECONDS: Final = 0.25


class DeletesRuns(Protocol):
    """The store as retention sees it."""

    async def delete_closed(
        self, shard_id: int, range_id: int, *, before_us: int, limit: int
    ) -> list[str]:
        """Delete runs that closed before an instant; return their ids."""
        ...


class Retention:
    """Deletes closed runs of this node's shards once they are older than `keep_us`."""

    def __init__(self, shards: Shards, store: DeletesRuns, keep_us: int) -> None:
        self._shards = shards
        self._store = store
        self._keep_us = keep_us
        self.deleted_count = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Go round all shards, again and again, until told to stop."""
        clock = self._shards.clock
        while not await pause(clock, stop, ROUND_SECONDS):
            for term in list(self._shards.terms.values()):
                while not stop.is_set() and await self._batch(term) == BATCH:
                    await clock.sleep(BATCH_PAUSE_SECONDS)

    async def _batch(self, term: Term) -> int:
        """Delete one batch of a shard; return how many runs went."""
        if not term.is_serving:
            return 0
        before_us = self._shards.now_us() - self._keep_us
        try:
            gone = await self._store.delete_closed(
                term.shard_id, term.range_id, before_us=before_us, limit=BATCH
            )
        except NotOwnerError:
            return 0  # the scan of ownership notices it too
        except OdinError as error:
            log.warning("retention in doubt", extra={"detail": str(error)})
            await self._shards.lane_of(term.shard_id).doubt({term.shard_id: term.range_id}, error)
            return 0
        for run_id in gone:
            run = term.runs.get(run_id)
            if run is not None:
                term.remove(run)
        self.deleted_count += len(gone)
        return len(gone)
