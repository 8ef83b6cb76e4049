"""Deleting what is old enough, under the fence, a bounded batch at a time."""

from __future__ import annotations

from .connections import SQL
from .writes import Writes


class Retention(Writes):
    """What an owner deletes of its shard."""

    async def delete_closed(
        self, shard_id: int, range_id: int, *, before_us: int, limit: int
    ) -> list[str]:
        """Delete up to `limit` runs that closed before `before_us`, and return their run ids.

        Their requests are given an end 24 h after the closing, if no other run of the workflow id
        is left; requests whose end has come are deleted too.

        Raises:
            NotOwnerError: The term is over; nothing was deleted.
            WriteRaisedError: Rolled back.
            OutcomeUnknownError: Nobody knows. Bump the shard, then read.
        """
        async with self.fenced(shard_id, range_id) as connection:
            await connection.execute(SQL["plan_by_index"])
            rows = await connection.fetch(SQL["closed_before"], shard_id, before_us, limit)
            run_ids = [row[0] for row in rows]
            if run_ids:
                await connection.execute(SQL["end_requests"], shard_id, run_ids)
                await connection.execute(SQL["delete_events"], shard_id, run_ids)
                await connection.execute(SQL["delete_executions"], shard_id, run_ids)
            await connection.execute(SQL["delete_requests"], shard_id, limit)
        return run_ids
