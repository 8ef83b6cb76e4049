"""Terms of shards: taking, bumping, releasing, and the view that ownership is decided by."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from odin.core.ownership import NodeState
from odin.errors import ConfigurationError

from .connections import SQL, Connections
from .errors import CALL_ERRORS
from .values import ClusterSettings, ClusterView, NodeRow, ShardRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    import asyncpg

    from odin.runtime.postgres import PooledConnection

# A frozen process keeps its locks until somebody ends its session.
_PATIENCE_SECONDS = 1.0


class Shards(Connections):
    """What an engine does to rows of `shard`."""

    async def open_cluster(self, shard_count: int, mode: str) -> ClusterSettings:
        """Create the cluster if there is none, and agree with it if there is.

        Raises:
            ConfigurationError: the cluster was created with other settings.
            WriteRaisedError, OutcomeUnknownError: ask again.
        """
        rows = await self._ask("create_cluster", shard_count, mode)
        found = ClusterSettings(*rows[0])
        if found != ClusterSettings(shard_count, mode):
            raise ConfigurationError(
                f"this cluster has {found.shard_count} shards and mode {found.mode!r}, this engine "
                f"is set to {shard_count} and {mode!r}: what a cluster began with cannot change",
                details={"shard_count": found.shard_count, "mode": found.mode},
            )
        return found

    async def acquire(self, shard_id: int, incarnation: str, *, holds_term: bool) -> int | None:
        """Take the shard if it may be taken, and return the range of the new term.

        Read nothing of the shard before this has returned: the last writes of the old owner are
        certain to be seen only then.

        Args:
            shard_id: The shard.
            incarnation: This process; its own row must be alive.
            holds_term: Whether this process has a term of the shard. Without one it may take again
                what the row says is its own: the reply to an acquisition or a bump was lost.

        Raises:
            WriteRaisedError: not taken.
            OutcomeUnknownError: perhaps taken; the next attempt finds out.
        """
        rows = await self._ask("acquire_shard", shard_id, incarnation, holds_term)
        range_id: int | None = rows[0][0]
        return range_id

    async def bump(self, incarnation: str, terms: Mapping[int, int]) -> dict[int, int]:
        """Begin a new term of every shard that is still held under its range.

        The first act after an unknown outcome: once it has returned, nothing of the old terms can
        land any more, and the shards may be read.

        Args:
            incarnation: This process.
            terms: Shard to the range under which it was held.

        Returns:
            Shard to its new range; shards that are missing are lost, unless an earlier bump went
            through unheard: then `acquire` takes them back.

        Raises:
            WriteRaisedError: no shard was bumped.
            OutcomeUnknownError: nobody knows; ask again, or acquire.
        """
        shard_ids = sorted(terms)
        ranges = [terms[shard_id] for shard_id in shard_ids]
        rows = await self._ask("bump_shards", incarnation, shard_ids, ranges)
        return {row[0]: row[1] for row in rows}

    async def release(
        self, shard_id: int, incarnation: str, range_id: int, *, heir: str | None
    ) -> bool:
        """Give the shard up, to `heir` or to whoever takes it; False if the term was over already.

        Raises:
            WriteRaisedError: not released.
            OutcomeUnknownError: nobody knows; bump it like any other write.
        """
        return bool(await self._ask("release_shard", shard_id, incarnation, range_id, heir))

    async def end_blocking_backends(self, pid: int, incarnation: str) -> list[int]:
        """End the sessions of dead or earlier processes that backend `pid` waits for.

        Returns:
            The backends that were told to end.
        """
        async with self._controlling() as connection:
            rows = await connection.fetch(SQL["end_blocking_backends"], pid, incarnation)
        return [row[0] for row in rows]

    async def cluster_view(self) -> ClusterView:
        """Return all nodes and shards, as of one moment.

        Raises:
            UnavailableError: the database did not answer.
        """
        row = await self._read_row("cluster_view")
        assert row is not None, "aggregates always yield a row"  # noqa: S101 - for the type checker
        nodes = zip(*((row[column] or ()) for column in range(1, 6)), strict=True)
        shards = zip(*((row[column] or ()) for column in range(6, 11)), strict=True)
        return ClusterView(
            db_now_us=row[0],
            nodes=tuple(
                NodeRow(incarnation, node_id, NodeState(state), lease_until_us, address)
                for incarnation, node_id, state, lease_until_us, address in nodes
            ),
            shards=tuple(ShardRow(*shard) for shard in shards),
        )

    async def _ask(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run the named statement as one transaction; whoever blocks it for long is looked into."""
        try:
            async with self._controlling() as connection:
                rows = await self._fetch_past_blockers(connection, name, *arguments)
        except CALL_ERRORS as error:
            raise self._write_error(error, name) from error
        self.condition.answered()
        return rows

    async def _fetch_past_blockers(
        self, connection: PooledConnection, name: str, *arguments: object
    ) -> list[asyncpg.Record]:
        async with asyncio.TaskGroup() as group:
            helping = group.create_task(
                self._help(connection.get_server_pid()), name="end blocking backends"
            )
            outcome = await _settled(connection.fetch(SQL[name], *arguments))
            helping.cancel()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _help(self, pid: int) -> None:
        """Look once a second whether a dead process holds what backend `pid` waits for."""
        while True:
            await self._clock.sleep(_PATIENCE_SECONDS)
            with suppress(*CALL_ERRORS):  # only a help: the call itself has its own bound
                await self.end_blocking_backends(pid, self.incarnation)


async def _settled(call: Awaitable[list[asyncpg.Record]]) -> list[asyncpg.Record] | BaseException:
    """Return the call's rows or its error, so that no group of exceptions is made of it."""
    try:
        return await call
    except CALL_ERRORS as error:
        return error
