"""The connections of one engine: lanes for groups, one for the lease, pools for the rest.

A lane and the lease have connections of their own, so that no crowd of reads can make a commit or a
renewal wait.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import asyncpg

from odin.runtime.clock import SystemClock
from odin.runtime.postgres import (
    WRITER,
    Session,
    check_max_connections,
    close_pool,
    connect,
    create_pool,
)
from odin.runtime.sql import load_queries

from .condition import Condition
from .errors import CALL_ERRORS, is_passing, read_error, write_error
from .lane import Lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odin.errors import OdinError, StoreUnavailableError
    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Pool, PooledConnection

assert __package__, "the store is a package"  # noqa: S101 - for the type checker
SQL: Final = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class ReadSession(Session):
    """Reads, planned alike on an empty and on a full table.

    A prepared statement whose plan was made while its table was empty would scan it for long after.
    """

    def server_settings(self, application_name: str) -> dict[str, str]:
        """Return the session's settings with sequential scans as the last resort."""
        return {
            # The class is rebuilt for its slots, so the short form of super() finds the wrong one.
            **Session.server_settings(self, application_name),
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_seqscan": "off",
        }


LEASE: Final = Session(
    lock_timeout=1.0,
    statement_timeout=2.0,
    command_timeout=2.5,
    connect_timeout=2.5,
)
# Taking a shard may wait for a lock of its last owner: long enough to find and end the blocker.
CONTROL: Final = Session(lock_timeout=4.0, statement_timeout=5.0, command_timeout=7.0)
READS: Final = ReadSession(statement_timeout=10.0, command_timeout=12.0, read_only=True)


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """How many connections an engine opens at most; their sum is `total`."""

    lanes: int = 1
    control: int = 4
    reads: int = 4

    @property
    def total(self) -> int:
        """All connections of the engine, the one for the lease included."""
        return self.lanes + self.control + self.reads + 1


class Connections:
    """Opens, lends and closes the connections of one incarnation.

    Args:
        dsn: `postgresql://...`.
        incarnation: The process start that the connections belong to; stands in their names.
        sizes: How many of each kind.
        clock: Paces the help for a blocked acquisition.
    """

    # How connections come about: a simulation brings its own.
    connect = staticmethod(connect)
    create_pool = staticmethod(create_pool)

    lane_session: ClassVar[Session] = WRITER

    def __init__(
        self,
        dsn: str,
        incarnation: str,
        *,
        sizes: PoolSizes = PoolSizes(),
        clock: Clock | None = None,
    ) -> None:
        self.incarnation = incarnation
        self.sizes = sizes
        self._dsn = dsn
        self._clock = clock or SystemClock()
        self.condition = Condition(self._clock)
        self._lanes = tuple(
            Lane(dsn, self._name(f"lane{number}"), self.lane_session, connect=self.connect)
            for number in range(sizes.lanes)
        )
        self._lease = Lane(dsn, self._name("lease"), LEASE, connect=self.connect)
        self._control_pool: Pool | None = None
        self._reads_pool: Pool | None = None

    async def open(self) -> None:
        """Open everything.

        Raises:
            OSError, asyncpg.PostgresError: the server cannot be reached; what was opened is closed.
            UnavailableError: it has no room for more, or was lost meanwhile; the same.
            ConfigurationError: the server gives fewer connections than the pools may hold.
        """
        try:
            await self._lease.open()
            for lane in self._lanes:
                await lane.open()
            self._control_pool = await self.create_pool(
                self._dsn,
                name="control",
                application_name=self._name("control"),
                min_size=1,
                max_size=self.sizes.control,
                session=CONTROL,
            )
            self._reads_pool = await self.create_pool(
                self._dsn,
                name="reads",
                application_name=self._name("reads"),
                min_size=1,
                max_size=self.sizes.reads,
                session=READS,
            )
            try:
                async with self._control_pool.acquire() as connection:
                    await check_max_connections(connection, self.sizes.total)
            except CALL_ERRORS as error:  # it was there a moment ago: whoever opens tries again
                raise read_error(error) from error
        except BaseException as error:
            await self.close()
            # No room for a connection is no reason to end: whoever opens tries again.
            if isinstance(error, asyncpg.PostgresError) and is_passing(error):
                raise read_error(error) from error
            raise

    async def close(self) -> None:
        """Close everything; what does not close in time is cut."""
        pools = [pool for pool in (self._control_pool, self._reads_pool) if pool is not None]
        self._control_pool = self._reads_pool = None
        # Side by side: one after the other, each would wait its whole time for a server that is
        # gone, and a supervisor that has asked for the end would have lost its patience.
        async with asyncio.TaskGroup() as group:
            for lane in (*self._lanes, self._lease):
                group.create_task(lane.close(), name="close lane")
            for pool in pools:
                group.create_task(close_pool(pool), name="close pool")

    @asynccontextmanager
    async def _controlling(self) -> AsyncIterator[PooledConnection]:
        """Lend a connection for work on nodes and terms; after any exception it is cut for good."""
        if self._control_pool is None:
            raise RuntimeError("the store is not open")
        async with self._control_pool.acquire(timeout=CONTROL.command_timeout) as connection:
            try:
                yield connection
            except BaseException:
                _cut(connection)
                raise

    async def _read(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run the named query and return its rows.

        Raises:
            UnavailableError: the database did not answer.
        """
        if self._reads_pool is None:
            raise RuntimeError("the store is not open")
        try:
            async with asyncio.timeout(READS.command_timeout), self._reads_pool.acquire() as taken:
                try:
                    rows = await taken.fetch(SQL[name], *arguments)
                except BaseException:
                    # Else its way back into the pool waits until the server has heard that the
                    # query is given up: for long, if the server is what does not answer.
                    _cut(taken)
                    raise
        except CALL_ERRORS as error:
            raise self._read_error(error) from error
        self.condition.answered()
        return rows

    async def _read_row(self, name: str, *arguments: object) -> asyncpg.Record | None:
        rows = await self._read(name, *arguments)
        return rows[0] if rows else None

    def _read_error(self, error: BaseException) -> StoreUnavailableError:
        self.condition.failed(error)
        return read_error(error)

    def _write_error(self, error: BaseException, what: str) -> OdinError:
        self.condition.failed(error)
        return write_error(error, what)

    def _name(self, purpose: str) -> str:
        return f"odin-engine/{self.incarnation}/{purpose}"


def _cut(connection: PooledConnection) -> None:
    """End a lent connection for good.

    One that broke has left the pool already, and its stand-in then refuses every call: what went
    wrong is what the caller is told, a cancellation too.
    """
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
