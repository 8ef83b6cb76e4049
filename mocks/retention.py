"""Forgets what is old, in small batches: books of a system that runs for weeks must not grow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

from odin.runtime.clock import pause

from .ledger import SQL

if TYPE_CHECKING:
    import asyncio

    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Pool

BATCH_COUNT = 500
EVERY_SECONDS = 30.0
_QUERIES = ("forget_keys", "forget_effects", "forget_orders", "forget_deliveries")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """The loop that deletes rows of one service older than `keep_for`."""

    pool: Pool
    clock: Clock
    service: str
    keep_for: timedelta

    async def __call__(self, stop: asyncio.Event) -> None:
        """Delete a batch of each table now and then until told to stop."""
        while not await pause(self.clock, stop, EVERY_SECONDS):
            try:
                await self.forget()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                log.warning("retention delayed", extra={"detail": type(error).__name__})

    async def forget(self) -> None:
        """Delete at most one batch of each table."""
        for name in _QUERIES:
            await self.pool.execute(SQL[name], self.service, self.keep_for, BATCH_COUNT)
