"""Finds the rows that the publisher does not hold: inherited, left out for want of room, lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

    from .publisher import Publisher
    from .transport import OutboxRow

ReadAll: TypeAlias = "Callable[[int], Awaitable[Sequence[OutboxRow]]]"
"""(shard_id): every outbox row of the shard that goes to a task queue, of the term of now."""
ReadDue: TypeAlias = "Callable[[Sequence[int], int], Awaitable[Sequence[OutboxRow]]]"
"""(shard_ids, now_us): rows due, oldest first, of the terms of now; the reader limits how many."""

SWEEP_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class Sweeper:
    """Offers a shard's rows when its term begins, and every 10 s those that are due.

    Args:
        publisher: Gets the rows; it leaves alone what it knows.
        read_all: Reads all rows of one shard.
        read_due: Reads due rows of some shards.
        now_us: The cluster's time.
        clock: Measures the waits.
    """

    def __init__(
        self,
        publisher: Publisher,
        read_all: ReadAll,
        read_due: ReadDue,
        now_us: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._publisher = publisher
        self._read_all = read_all
        self._read_due = read_due
        self._now_us = now_us
        self._clock = clock
        self._shards: set[int] = set()
        self._begun: set[int] = set()
        self._wake = asyncio.Event()
        self._sweep_at = 0.0
        self._failing = False
        self.sweeps_count = 0

    def term_began(self, shard_id: int) -> None:
        """The engine's term of this shard has begun: its inherited rows are read now."""
        self._shards.add(shard_id)
        self._begun.add(shard_id)
        self._wake.set()

    def term_over(self, shard_id: int) -> None:
        """The engine's term of this shard is over: it is swept no more."""
        self._shards.discard(shard_id)
        self._begun.discard(shard_id)

    async def run(self, stop: asyncio.Event) -> None:
        """Read and offer until `stop` is set."""
        self._sweep_at = self._clock.boottime() + SWEEP_SECONDS
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._wake_with(stop), name="sweep stop"),
                group.create_task(self._wake_with_room(), name="sweep room"),
                group.create_task(self._wake_with_time(), name="sweep time"),
            ]
            while not stop.is_set():
                await self._wake.wait()
                self._wake.clear()
                if not stop.is_set() and not await self._guarded():
                    await self._clock.sleep(_RETRY_SECONDS)
                    self._wake.set()
            for helper in helpers:
                helper.cancel()

    async def _guarded(self) -> bool:
        """Do what there is to do; return whether all of it succeeded. Failures are logged once."""
        try:
            await self._inherit()
            if self._clock.boottime() >= self._sweep_at:
                await self._sweep()
        except Exception:  # whatever a reader throws: the next try is near
            if not self._failing:
                self._failing = True
                log.exception("sweep failed")
            return False
        self._failing = False
        return True

    async def _inherit(self) -> None:
        while self._begun:
            shard_id = min(self._begun)
            rows = await self._read_all(shard_id)
            self._begun.discard(shard_id)
            self._publisher.offer(rows)

    async def _sweep(self) -> None:
        if self._shards and not self._publisher.full:
            rows = await self._read_due(sorted(self._shards), self._now_us())
            self._publisher.offer(rows)
        self._publisher.age()
        self.sweeps_count += 1
        self._sweep_at = self._clock.boottime() + SWEEP_SECONDS

    async def _wake_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _wake_with_room(self) -> None:
        """Rows were left out and there is room again: look for them at once."""
        while True:
            await self._publisher.room.wait()
            self._publisher.room.clear()
            self._sweep_at = 0.0
            self._wake.set()

    async def _wake_with_time(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            self._wake.set()
