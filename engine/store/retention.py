"""Deleting what is old enough, under the fence, a bounded batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .connections import SQL
from .errors import CALL_ERRORS
from .writes import Writes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went, as shard and run id; nothing of the `refused` shards, whose terms are over."""

    refused: frozenset[int]
    runs: tuple[tuple[int, str], ...]


class Retention(Writes):
    """What an owner deletes of its shards."""

    async def delete_closed(
        self, terms: Mapping[int, int], *, before_us: int, limit: int, lane: int = 0
    ) -> Deleted:
        """Delete up to `limit` runs that closed before `before_us`, those closed longest ago first.

        Their requests are given an end 24 h after the closing, if no other run of the workflow id
        is left; requests whose end has come are deleted too, up to `limit` of each shard.

        Args:
            terms: Shard to range; the shards all belong to `lane`.
            before_us: An instant of the database's clock, in us.
            limit: The most that go in one call.
            lane: The connection to use; groups of the same lane wait.

        Raises:
            WriteRaisedError: Rolled back.
            OutcomeUnknownError: Nobody knows. Bump the shards, then read.
        """
        ranges = list(terms.values())
        arguments = [self.incarnation, list(terms), ranges, before_us, limit]
        try:
            row = await self._lanes[lane].fetchrow(SQL["delete_closed"], arguments)
        except CALL_ERRORS as error:
            raise self._write_error(error, f"retention of {len(terms)} shards") from error
        assert row is not None, "a function always yields a row"  # noqa: S101 - for the type checker
        return Deleted(frozenset(row[0]), tuple(zip(row[1], row[2], strict=True)))
