"""One connection that is replaced, never reused, once anything went wrong on it.

After a failure the backend behind a connection may still be at work, and what it does must not mix
with what is asked next: a late cancel hits the wrong statement, a late reply answers it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from odin.runtime.postgres import connect

from .errors import CALL_ERRORS, NotConnectedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

    from odin.runtime.postgres import Connection, Session

_CLOSE_SECONDS = 2.0
COMMIT_IN_STEPS = "COMMIT /* a group in steps */"
"""Whoever stands in between tells it from every other statement."""


class Connect(Protocol):
    """Opens a connection."""

    async def __call__(  # noqa: D102 - see odin.runtime.postgres.connect
        self, dsn: str, *, application_name: str, session: Session
    ) -> Connection: ...


class Lane:
    """A connection for one kind of call at a time, opened when it is first needed.

    Args:
        dsn: `postgresql://...`.
        application_name: What `pg_stat_activity` shows.
        session: The bounds of every call; no wait here is longer.
        connect: How a connection is opened.
    """

    def __init__(
        self,
        dsn: str,
        application_name: str,
        session: Session,
        *,
        connect: Connect = connect,
    ) -> None:
        self._dsn = dsn
        self._application_name = application_name
        self._session = session
        self._connect = connect
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend the connection, one borrower at a time; after any exception it is cut for good.

        Raises:
            NotConnectedError: the server cannot be reached.
        """
        async with self._busy:
            connection = await self._opened()
            try:
                yield connection
            except BaseException:
                self._connection = None
                connection.terminate()
                raise

    async def fetchrow(self, query: str, arguments: Sequence[object]) -> asyncpg.Record | None:
        """Run `query` as one transaction and return its first row.

        Raises:
            NotConnectedError: the server cannot be reached; nothing was sent.
            asyncpg.PostgresError, asyncpg.InterfaceError, OSError: what asyncpg raised.
        """
        # As in `connection`, whose context manager costs as much as a small group's encoding.
        async with self._busy:
            connection = await self._opened()
            try:
                return await connection.fetchrow(query, *arguments)
            except BaseException:
                self._connection = None
                connection.terminate()
                raise

    async def fetchrow_in_steps(
        self, query: str, arguments: Sequence[object]
    ) -> asyncpg.Record | None:
        """Do what `fetchrow` does in three round trips: BEGIN, the query, COMMIT.

        Raises:
            asyncpg.PostgresError, asyncpg.InterfaceError, OSError: what asyncpg raised.
        """
        async with self.connection() as connection:
            await connection.execute("BEGIN")
            row = await connection.fetchrow(query, *arguments)
            await connection.execute(COMMIT_IN_STEPS)
            return row

    async def open(self) -> None:
        """Connect now rather than at the first call.

        Raises:
            OSError, asyncpg.PostgresError: the server cannot be reached, or refuses.
        """
        async with self._busy:
            await self._open()

    async def close(self) -> None:
        """Close the connection; cut it if it does not close in time."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=_CLOSE_SECONDS)
        except CALL_ERRORS:
            connection.terminate()

    async def _opened(self) -> Connection:
        try:
            return await self._open()
        except CALL_ERRORS as error:
            raise NotConnectedError(error) from error

    async def _open(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect(
                self._dsn, application_name=self._application_name, session=self._session
            )
        return self._connection
