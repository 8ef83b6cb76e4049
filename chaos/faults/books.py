"""Postgres as chaos reads it: on a fresh connection each time, for it is one of the victims."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from odin.errors import UnavailableError
from odin.runtime.postgres import Session, connect
from odin.runtime.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from odin.runtime.postgres import Connection

SQL: Final = load_queries(__package__)
SESSION: Final = Session(statement_timeout=5.0, command_timeout=6.0, connect_timeout=3.0)
# Not one of odin's own backends: those are victims.
NAME: Final = "chaos"
_LOST: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class BooksClosedError(UnavailableError):
    """Postgres does not answer at the moment."""

    reason = "POSTGRES_DOWN"


class Books:
    """The tables, read only."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        """Yield a connection of its own.

        Raises:
            BooksClosedError: Postgres does not answer.
        """
        try:
            connection = await connect(self._dsn, application_name=NAME, session=SESSION)
        except _LOST as error:
            raise BooksClosedError(f"Postgres does not answer: {error}") from error
        try:
            yield connection
        except _LOST as error:
            raise BooksClosedError(f"Postgres does not answer: {error}") from error
        finally:
            connection.terminate()

    async def fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run a named query.

        Raises:
            BooksClosedError: Postgres does not answer.
        """
        async with self.open() as connection:
            return await connection.fetch(SQL[name], *arguments)

    async def value(self, name: str, *arguments: object) -> int:
        """Return the one number of a named query; errors as for `fetch`."""
        [row] = await self.fetch(name, *arguments)
        return int(row[0])

    async def now(self) -> datetime:
        """Return Postgres's time; errors as for `fetch`."""
        [row] = await self.fetch("read_now")
        found = row[0]
        assert isinstance(found, datetime)  # noqa: S101 - for the type checker
        return found

    async def owned(self, nodes: Sequence[str]) -> list[int]:
        """Return the shards of these engines; errors as for `fetch`."""
        return [int(row[0]) for row in await self.fetch("read_owned", list(nodes))]

    async def owners(self) -> dict[str, int]:
        """Return how many shards each living engine owns; errors as for `fetch`."""
        return {str(row[0]): int(row[1]) for row in await self.fetch("read_owners")}

    async def backends(self) -> set[int]:
        """Return the pids of odin's backends; errors as for `fetch`."""
        return {int(row[0]) for row in await self.fetch("read_backends")}
