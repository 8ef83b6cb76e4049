"""The store of one incarnation: every statement of an engine goes through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .dead_letters import DeadLetterRows
from .lists import Lists
from .lookups import Lookups
from .proof import Proofs
from .reads import Reads
from .retention import Retention
from .shards import Shards

if TYPE_CHECKING:
    from types import TracebackType


class Store(Retention, Shards, DeadLetterRows, Reads, Lookups, Lists, Proofs):
    """Writes under the fence, terms, leases and reads, on connections that name the incarnation.

        async with Store(dsn, ids.incarnation()) as store:
            await store.open_cluster(64, "sharded")

    A process that goes on under a new incarnation makes a new store.
    """

    async def __aenter__(self) -> Self:
        """Open the connections."""
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()
