"""Commits in steps: BEGIN, call, COMMIT, so that tests can stop an engine between lock and commit.

A group is one call otherwise, and its locks last no longer than the call. Here they last over two
more round trips, and as long as the engine likes: whoever takes its shards must end its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from odin.runtime.postgres import Session

from .store import Store

if TYPE_CHECKING:
    import asyncpg

    from .lane import Lane


class SteppingStore(Store):
    """A store that commits groups in steps."""

    # Not Postgres by itself is to end a session that stopped half way, but whoever takes the shard.
    lane_session: ClassVar[Session] = Session(idle_in_transaction_timeout=60.0)

    async def _send(self, lane: Lane, query: str, arguments: list[object]) -> asyncpg.Record | None:
        return await lane.fetchrow_in_steps(query, arguments)
