"""The node's lease: one row, one renewal every few seconds, and a death that is final."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .connections import SQL, Connections
from .errors import CALL_ERRORS
from .values import NodeIdTaken, Renewed

if TYPE_CHECKING:
    import asyncpg

LEASE_US = 10_000_000


class Nodes(Connections):
    """What an engine does to rows of `node`. Every judgement is made by the database's clock."""

    async def register_node(
        self, incarnation: str, node_id: str, address: str, *, lease_us: int = LEASE_US
    ) -> Renewed | NodeIdTaken:
        """Write the row of a new incarnation, with its first lease.

        Returns:
            The lease, or who has the node_id. Then wait until that lease is over (11 s at most),
            call `mark_dead_expired` and try again; refuse to start if the lease was renewed.

        Raises:
            WriteRaisedError, OutcomeUnknownError: go on under another incarnation.
        """
        rows = await self._change("register_node", incarnation, node_id, address, lease_us)
        if rows:
            return Renewed(*rows[0])
        holders = await self._change("node_id_holder", node_id)
        if holders:
            return NodeIdTaken(*holders[0])
        return NodeIdTaken("", 0, 0)  # it died between the two statements: try again at once

    async def renew(self, incarnation: str, *, lease_us: int = LEASE_US) -> Renewed | None:
        """Prolong the lease, on a connection of its own.

        Returns:
            The lease, or None if it is over for good: go on under a new incarnation.

        Raises:
            WriteRaisedError, OutcomeUnknownError: no answer; it may be tried again.
        """
        try:
            row = await self._lease.fetchrow(SQL["renew_lease"], (incarnation, lease_us))
        except CALL_ERRORS as error:
            raise self._write_error(error, "the renewal of the lease") from error
        self.condition.answered()
        return Renewed(*row) if row is not None else None

    async def mark_dead_expired(self) -> list[str]:
        """Mark every node dead whose lease is over, and return the incarnations just marked."""
        return [row[0] for row in await self._change("mark_dead_expired")]

    async def set_draining(self, incarnation: str) -> bool:
        """Say that the node wants no more shards; it renews like before. False if it is dead."""
        return bool(await self._change("set_draining", incarnation))

    async def set_dead(self, incarnation: str) -> bool:
        """Say that the node is gone: its last act, all being released. False if it was dead."""
        return bool(await self._change("set_dead", incarnation))

    async def forget_nodes(self, *, after_us: int = 3_600_000_000) -> list[str]:
        """Delete rows of nodes that are dead for so long and that no shard names."""
        return [row[0] for row in await self._change("forget_nodes", after_us)]

    async def _change(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run the named statement as one transaction and return its rows.

        Raises:
            WriteRaisedError: it was rolled back.
            OutcomeUnknownError: nobody knows.
        """
        try:
            async with self._controlling() as connection:
                return await connection.fetch(SQL[name], *arguments)
        except CALL_ERRORS as error:
            raise self._write_error(error, name) from error
