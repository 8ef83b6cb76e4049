"""One consistent look at the database that neither blocks the engines nor holds it all in memory.

Everything is read in one REPEATABLE READ READ ONLY transaction, in batches. Reading takes no lock
that a writer waits for; what it costs the engines is that vacuum keeps what the snapshot can see,
so each statement and each pause between two is bounded, and a pass ends by itself.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odin.proof.rows import TermRow
from odin.runtime.postgres import Session, connect
from odin.runtime.sql import load_queries

from .invariants.rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import asyncpg

    from odin.runtime.postgres import Connection

SQL: Final[Mapping[str, str]] = load_queries(__package__)
APPLICATION_NAME: Final = "odin-checker"
SESSION: Final = Session(
    idle_in_transaction_timeout=60.0, statement_timeout=60.0, command_timeout=65.0, read_only=True
)


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is judged, in microseconds since 1970; `until_us` is not part of it."""

    since_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An open snapshot.

    Attributes:
        connection: Reads it; in its transaction.
        window: What is judged.
        now_us: The database's clock when the snapshot was taken.
        has_commit_times: Whether the server keeps them.
        shard_count: The cluster's; 0 if no engine ever ran.
        effects_since_us: How far back the mocks' ledgers go; None if they are empty.
        schedule_count: How many schedules are stored.
    """

    connection: Connection
    window: Window
    now_us: int
    has_commit_times: bool
    shard_count: int
    effects_since_us: int | None
    schedule_count: int

    async def fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Return all rows of a named query that has few."""
        return await self.connection.fetch(SQL[name], *arguments)

    async def batches(
        self, name: str, size: int, *arguments: object
    ) -> AsyncIterator[Sequence[asyncpg.Record]]:
        """Yield the rows of a named query, `size` at a time; other queries may run in between."""
        cursor = await self.connection.cursor(SQL[name], *arguments)
        while rows := await cursor.fetch(size):
            yield rows

    @asynccontextmanager
    async def section(self) -> AsyncIterator[None]:
        """Keep a failure inside the block from spoiling the rest of the snapshot."""
        async with self.connection.transaction():
            yield

    async def shards(self) -> list[ShardRow]:
        """Return the fences."""
        return [ShardRow(**dict(row)) for row in await self.fetch("read_shards")]

    async def terms(self) -> dict[int, list[TermRow]]:
        """Return every term of every shard; there are as many as there were changes of owners."""
        found: dict[int, list[TermRow]] = {}
        for row in await self.fetch("read_terms", self.has_commit_times):
            found.setdefault(row["shard_id"], []).append(TermRow(**dict(row)))
        return found


@asynccontextmanager
async def snapshot(dsn: str, since_us: int, until_us: int | None) -> AsyncIterator[Snapshot]:
    """Open a snapshot; it is gone when the block is left.

    Args:
        dsn: The database, with the newest schema.
        since_us: Where the window begins.
        until_us: Where it ends; None: when the snapshot is taken.

    Raises:
        OSError, asyncpg.PostgresError: The database cannot be reached or read.
    """
    connection = await connect(dsn, application_name=APPLICATION_NAME, session=SESSION)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield await _opened(connection, since_us, until_us)
    finally:
        await connection.close(timeout=5)


async def _opened(connection: Connection, since_us: int, until_us: int | None) -> Snapshot:
    row: dict[str, Any] = dict(await connection.fetchrow(SQL["begin_snapshot"]) or {})
    now_us = int(row["now_us"])
    return Snapshot(
        connection=connection,
        window=Window(since_us, now_us + 1 if until_us is None else until_us),
        now_us=now_us,
        has_commit_times=bool(row["has_commit_times"]),
        shard_count=int(row["shard_count"] or 0),
        effects_since_us=row["effects_since_us"],
        schedule_count=int(row["schedule_count"]),
    )
