"""The fence in use: groups, and rare work of several statements."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from odin.errors import NotOwnerError

from .connections import SQL, Connections
from .encode import encode_group
from .errors import CALL_ERRORS
from .group import Committed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from odin.runtime.postgres import Connection

    from .group import Group
    from .lane import Lane


class Writes(Connections):
    """Writes of the shards' owner."""

    def lane_of(self, shard_id: int) -> int:
        """Return the lane by which the shard is written, always the same."""
        return shard_id % self.sizes.lanes

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        """Write the group in one transaction, except for shards whose term is over.

        If the caller is cancelled meanwhile, the outcome is unknown as well.

        Args:
            group: What to write; its shards all belong to `lane`.
            lane: The connection to use. A second group of the same lane waits for the first.

        Returns:
            Which shards were refused, and the ids of the new outbox rows.

        Raises:
            ValueError: the group names a shard without a term; nothing was sent.
            WriteRaisedError: the database rolled the whole group back, or nothing was sent.
            OutcomeUnknownError: nobody knows. Bump every shard of the group, then read.
        """
        arguments = encode_group(group)
        try:
            row = await self._send(self._lanes[lane], SQL["commit_group"], arguments)
        except CALL_ERRORS as error:
            raise self._write_error(error, f"a group of {len(group.terms)} shards") from error
        self.condition.wrote()
        assert row is not None, "a function always yields a row"  # noqa: S101 - for the type checker
        refused, outbox_ids = frozenset(row[0]), row[1]
        if not refused:
            return Committed(refused, tuple(outbox_ids))
        if not outbox_ids:
            return Committed(refused, (0,) * len(group.outbox))
        return Committed(
            refused,
            tuple(
                0 if insert.shard_id in refused else outbox_id
                for insert, outbox_id in zip(group.outbox, outbox_ids, strict=True)
            ),
        )

    async def _send(self, lane: Lane, query: str, arguments: list[object]) -> asyncpg.Record | None:
        """Run the call that commits a group, on its lane."""
        return await lane.fetchrow(query, arguments)

    @asynccontextmanager
    async def fenced(
        self, shard_id: int, range_id: int, *, lane: int | None = None
    ) -> AsyncIterator[Connection]:
        """Open a transaction that can commit only while the term lasts, for rare work.

        It holds the shard's lane, so keep it short; do nothing in it but ask the database.

        Raises:
            NotOwnerError: the term is over; nothing was written.
            WriteRaisedError: the database rolled the transaction back.
            OutcomeUnknownError: nobody knows. Bump the shard, then read.
        """
        chosen = self._lanes[self.lane_of(shard_id) if lane is None else lane]
        try:
            async with chosen.connection() as connection, connection.transaction():
                if not await connection.fetchval(
                    SQL["share_lock_term"], shard_id, self.incarnation, range_id
                ):
                    raise NotOwnerError(f"the term {range_id} of shard {shard_id} is over")
                yield connection
        except CALL_ERRORS as error:
            raise self._write_error(error, f"work on shard {shard_id}") from error
