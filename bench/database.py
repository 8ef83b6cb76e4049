"""What Postgres itself says of a workload: rows and transactions written, write-ahead log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg

from odin.errors import FailedPreconditionError, UnavailableError
from odin.runtime.sql import load_queries

from .results import DatabaseFigures

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any]

SQL: Final = load_queries(__package__)
TIMEOUT_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 3.0
POLL_SECONDS: Final = 0.05


class Marks(NamedTuple):
    """Where Postgres stands at one instant."""

    next_txid: int
    wal_bytes: int
    outbox_id: int


class Database:
    """Reads figures over one connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def marks(self) -> Marks:
        """Return where Postgres stands now."""
        row = await self._connection.fetchrow(SQL["read_marks"])
        if row is None:
            raise UnavailableError("Postgres gave no row")
        return Marks(int(row["next_txid"]), int(row["wal_bytes"]), int(row["outbox_id"]))

    async def settle(self) -> None:
        """Wait until the outbox is empty, a few seconds at most: its last rows go in bulk."""
        for _ in range(int(SETTLE_SECONDS / POLL_SECONDS)):
            if await self._connection.fetchval(SQL["is_outbox_empty"]):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def figures(self, before: Marks, after: Marks) -> DatabaseFigures:
        """Return what was written between two instants."""
        row = await self._connection.fetchrow(
            SQL["count_events"], before.next_txid, after.next_txid
        )
        if row is None:
            raise UnavailableError("Postgres gave no row")
        return DatabaseFigures(
            events=row["events"],
            groups=row["groups"],
            write_transactions=after.next_txid - before.next_txid,
            outbox_rows=after.outbox_id - before.outbox_id,
            wal_bytes=after.wal_bytes - before.wal_bytes,
        )

    async def durability(self) -> dict[str, str]:
        """Return the settings that decide what a commit is worth."""
        rows = await self._connection.fetch(SQL["read_durability"])
        return {row["name"]: row["setting"] for row in rows}

    async def version(self) -> str:
        """Return the server's version."""
        return str(await self._connection.fetchval(SQL["read_version"]))

    async def refuse_company(self) -> None:
        """Refuse a database on which engines run already: ours would take their shards.

        Raises:
            FailedPreconditionError: There is one.
        """
        if await self._connection.fetchval(SQL["count_living_engines"]):
            raise FailedPreconditionError(
                "engines run on this database already: measure them with --address",
                reason="CLUSTER_RUNS",
            )


@asynccontextmanager
async def database_of(dsn: str) -> AsyncIterator[Database]:
    """Connect for the length of the block."""
    connection = await asyncpg.connect(dsn, timeout=10, command_timeout=TIMEOUT_SECONDS)
    try:
        yield Database(connection)
    finally:
        await connection.close(timeout=5)
