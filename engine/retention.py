"""Closed runs go after a while: paced, a bounded batch of a lane at a time, under the fence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from odin.errors import OdinError
from odin.runtime.clock import pause

from .lane import Lane
from .shards import Shards
from .store.retention import Deleted

log = logging.getLogger(__name__)

BATCH: Final = 100
ROUND_SECONDS: Final = 20.0
BATCH_PAUSE_SECONDS: Final = 0.25


class DeletesRuns(Protocol):
    """The store as retention sees it."""

    async def delete_closed(
        self, terms: Mapping[int, int], *, before_us: int, limit: int, lane: int = 0
    ) -> Deleted:
        """Delete runs of these shards that closed before an instant."""
        ...


class Retention:
    """Deletes closed runs of this node's shards once they are older than `keep_us`."""

    def __init__(self, shards: Shards, store: DeletesRuns, keep_us: int) -> None:
        self._shards = shards
        self._store = store
        self._keep_us = keep_us
        self.deleted_count = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Go round the lanes, again and again, until told to stop."""
        clock = self._shards.clock
        while not await pause(clock, stop, ROUND_SECONDS):
            for number, lane in enumerate(self._shards.lanes):
                while not stop.is_set() and await self._batch(number, lane) == BATCH:
                    await clock.sleep(BATCH_PAUSE_SECONDS)

    async def _batch(self, number: int, lane: Lane) -> int:
        """Delete one batch of a lane's shards, in one call; return how many runs went."""
        shards = self._shards
        terms = {
            term.shard_id: term
            for term in shards.terms.values()
            if term.is_serving and shards.lane_of(term.shard_id) is lane
        }
        if not terms:
            return 0
        ranges = {shard_id: term.range_id for shard_id, term in terms.items()}
        before_us = shards.now_us() - self._keep_us
        try:
            deleted = await self._store.delete_closed(
                ranges, before_us=before_us, limit=BATCH, lane=number
            )
        except OdinError as error:
            log.warning("retention in doubt", extra={"detail": str(error)})
            await lane.doubt(ranges, error)
            return 0
        # A refused shard has another owner; the scan of ownership notices it too.
        for shard_id, run_id in deleted.runs:
            term = terms[shard_id]
            run = term.runs.get(run_id)
            if run is not None:
                term.remove(run)
        self.deleted_count += len(deleted.runs)
        return len(deleted.runs)
