"""What must be seen of an experiment beside the fault itself, by name: each a look at evidence.

A look returns what it found, or None as long as there is nothing to be seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odin.errors import InvalidArgumentError

if TYPE_CHECKING:
    from datetime import datetime

    from .faults.stage import Stage

Evidence: TypeAlias = dict[str, Any]


@dataclass
class Witness:
    """Looks at what happens since one instant.

    Attributes:
        stage: The cluster.
        since: The instant, by Postgres's clock.
        shards: Shards of the victims at that instant; of all engines if no engine is a victim.
    """

    stage: Stage
    since: datetime
    shards: list[int] = field(default_factory=list)

    @classmethod
    async def at_once(cls, stage: Stage) -> Witness:
        """Begin to look now.

        Raises:
            BooksClosedError: Postgres does not answer.
        """
        since = await stage.books.now()
        engines = stage.names("engine")
        chosen = [one for one in engines if one in stage.struck]
        shards = await stage.books.owned(chosen or engines)
        return cls(stage, since, shards)

    async def look(self, name: str) -> Evidence | None:
        """Return the evidence of this name, None if there is none yet.

        Raises:
            InvalidArgumentError: there is no such look.
            BooksClosedError: Postgres does not answer.
        """
        look = LOOKS.get(name)
        if look is None:
            raise InvalidArgumentError(f"nobody knows how to look for {name!r}")
        return await look(self)

    async def terms(self, happening: str, nodes: Collection[str] = ()) -> Evidence | None:
        """Return what happened in this way to the victims' shards.

        Args:
            happening: As `shard_term` has it.
            nodes: Only terms of these; empty: of anyone.
        """
        rows = await self.stage.books.fetch("read_terms", self.since, self.shards)
        found = [
            row
            for row in rows
            if row["happening"] == happening and (not nodes or row["node_id"] in nodes)
        ]
        if not found:
            return None
        return {
            "shards": sum(int(row["shards"]) for row in found),
            "of": len(self.shards),
            "by": {str(row["node_id"]): int(row["terms"]) for row in found},
            "first after s": round(min(float(row["first_seconds"]) for row in found), 2),
            "last after s": round(max(float(row["last_seconds"]) for row in found), 2),
        }


async def _takeover(witness: Witness) -> Evidence | None:
    """Terms of the victims were ended by takers, and new ones have begun.

    A new term alone is no proof: shards also move when an engine joins.
    """
    expired = await witness.terms("expired", witness.stage.struck)
    acquired = await witness.terms("acquired")
    if expired is None or acquired is None:
        return None
    return {**acquired, "expired": expired["shards"]}


async def _bumped(witness: Witness) -> Evidence | None:
    return await witness.terms("bumped")


async def _released(witness: Witness) -> Evidence | None:
    return await witness.terms("released")


async def _no_lease_lost(witness: Witness) -> Evidence | None:
    count = await witness.stage.books.value("count_expired", witness.since)
    return None if count else {"terms that expired": 0}


async def _published_again(witness: Witness) -> Evidence | None:
    """Rows wait in the outbox although they were published: more than once, some of them."""
    [row] = await witness.stage.books.fetch("read_outbox", witness.shards)
    if int(row["published_max"]) < 1:
        return None
    return {
        "rows": int(row["depth"]),
        "published again": int(row["published_max"]),
        "oldest s": round(float(row["oldest_seconds"]), 2),
    }


LOOKS: Final[dict[str, Callable[[Witness], Awaitable[Evidence | None]]]] = {
    "takeover": _takeover,
    "bumped": _bumped,
    "released": _released,
    "no lease lost": _no_lease_lost,
    "published again": _published_again,
}
