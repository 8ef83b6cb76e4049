"""The client's side: connections and pools that behave like asyncpg's, as far as odin uses them."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from odin.runtime.postgres import Session

    from .database import SimDatabase
    from .server import Backend


class SimConnection:
    """One connection. After anything went wrong on it, it is to be terminated.

    Attributes:
        backend: The server's end.
        host: The machine of the client.
        answer: What the running call waits for.
    """

    def __init__(
        self, database: SimDatabase, host: str, application_name: str, session: Session
    ) -> None:
        self.database = database
        self.host = host
        self.application_name = application_name
        self.session = session
        self.is_cut = False
        self.answer: asyncio.Future[list[Any]] | None = None
        self._gives_up_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.backend: Backend = database.accept(self)

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run a named query and return its rows."""
        return await self.call(self.database.name_of(query), arguments)

    async def fetchrow(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 - a row
        """Return the first row, or None."""
        rows = await self.fetch(query, *arguments)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 - a value
        """Return the first value of the first row, or None."""
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    async def execute(self, query: str, *arguments: object) -> None:
        """Run a named query."""
        await self.fetch(query, *arguments)

    async def call(self, name: str, arguments: tuple[object, ...]) -> list[Any]:
        """Ask the server, within the session's own bound."""
        if self.is_cut:
            raise asyncpg.InterfaceError("connection is closed")
        if self.answer is not None:
            raise asyncpg.InterfaceError("another operation is in progress")
        loop = self.database.loop
        answer: asyncio.Future[list[Any]] = loop.create_future()
        self.answer = answer
        self._gives_up_at = loop.now + self.session.command_timeout
        if self._watch is None:
            self._watch = loop.call_at(self._gives_up_at, self._look)
        self.database.send(self, name, arguments, answer)
        try:
            return await answer
        except (asyncio.CancelledError, TimeoutError):
            self.is_cut = True
            self.database.give_up(self)
            raise
        finally:
            self.answer = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Open a transaction block; roll it back if the block raises."""
        await self.call("BEGIN", ())
        try:
            yield
        except BaseException:
            if not self.is_cut:
                await self.call("ROLLBACK", ())
            raise
        await self.call("COMMIT", ())

    def get_server_pid(self) -> int:
        """Return the backend's number."""
        return self.backend.pid

    def is_closed(self) -> bool:
        """Return whether the connection is known to be gone."""
        return self.is_cut

    def terminate(self) -> None:
        """Cut the connection."""
        if not self.is_cut:
            self.is_cut = True
            self.database.hang_up(self)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's own
        """Say goodbye."""
        del timeout
        self.terminate()

    def broken(self) -> None:
        """The line has broken: whoever waits for an answer learns no more than that."""
        self.is_cut = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(
                asyncpg.ConnectionDoesNotExistError("connection was closed in the middle")
            )

    def _look(self) -> None:
        """Give up what has waited for too long: one timer for many calls, of which few need it."""
        self._watch, answer, loop = None, self.answer, self.database.loop
        if answer is None or answer.done():
            return
        if loop.now < self._gives_up_at:
            self._watch = loop.call_at(self._gives_up_at, self._look)
        else:
            answer.set_exception(TimeoutError())


class SimPool:
    """A pool of connections, lent to one borrower at a time."""

    def __init__(
        self, database: SimDatabase, host: str, application_name: str, size: int, session: Session
    ) -> None:
        self._database = database
        self._host = host
        self._application_name = application_name
        self._size = size
        self._session = session
        self._free: list[SimConnection] = []
        self._lent: dict[SimConnection, None] = {}
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def acquire(self, *, timeout: float | None = None) -> _Lent:
        """Lend a connection within `timeout` seconds."""
        return _Lent(self, timeout)

    async def take(self, timeout: float | None) -> SimConnection:  # noqa: ASYNC109 - asyncpg's own
        """Return a connection, as soon as one is free or can be opened."""
        if not self._is_closed and self._free and not self._free[-1].is_cut:
            connection = self._free.pop()
            self._lent[connection] = None
            return connection
        async with asyncio.timeout(timeout):
            while True:
                if self._is_closed:
                    raise asyncpg.InterfaceError("pool is closing")
                while self._free:
                    connection = self._free.pop()
                    if not connection.is_cut:
                        self._lent[connection] = None
                        return connection
                if len(self._lent) + self._opening < self._size:
                    return await self._open()
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                try:
                    await turn
                except BaseException:
                    self._pass_on(turn)
                    raise

    async def _open(self) -> SimConnection:
        self._opening += 1
        try:
            connection = await self._database.connect(
                self._host, self._application_name, self._session
            )
        except BaseException:
            self._opening -= 1
            self._wake_next()
            raise
        self._opening -= 1
        self._lent[connection] = None
        return connection

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled():
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def give_back(self, connection: SimConnection) -> None:
        """Take a connection back; one that is cut is forgotten."""
        self._lent.pop(connection, None)
        if self._is_closed:
            connection.terminate()
        elif not connection.is_cut:
            self._free.append(connection)
        self._wake_next()

    async def close(self) -> None:
        """Close every connection; those that are lent as they come back."""
        self._is_closed = True
        for connection in self._free:
            connection.terminate()
        self._free.clear()
        while self._lent:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def terminate(self) -> None:
        """Cut every connection."""
        self._is_closed = True
        for connection in (*self._free, *self._lent):
            connection.terminate()


class _Lent:
    """A connection of a pool, for the time of a block."""

    def __init__(self, pool: SimPool, timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout
        self._connection: SimConnection | None = None

    async def __aenter__(self) -> SimConnection:
        self._connection = await self._pool.take(self._timeout)
        return self._connection

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._connection is not None
        self._pool.give_back(self._connection)
