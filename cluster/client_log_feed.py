"""Copies a client log into Postgres as it grows, where the checker holds it against the runs.

The file is the queue: nothing is held in memory but the batch under way, and while Postgres is
away the copy falls behind and the load goes on. A batch whose outcome is unknown is sent again
under the same line numbers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from odin.runtime.clock import pause
from odin.runtime.postgres import Session, connect
from odin.runtime.sql import load_queries

from .client_log import Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Connection

    from .client_log import ClientLog

SQL: Final = load_queries(__package__)
CHUNK_BYTES: Final = 128 * 1024
POLL_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 2.0
LAST_SECONDS: Final = 1.5
FORGET_EVERY_COUNT: Final = 120
"""Rounds between two looks for lines that are too old: about a minute."""
_LOST: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
_WRITER: Final = Session(connect_timeout=2.0)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Feed:
    """Sends the lines of one client log.

    Attributes:
        dsn: Where to.
        path: The log.
        client: The name under which they stand there; one for each process.
        clock: Paces the looks at the file.
        position: Up to where the file was sent, bytes.
        line_count: How many lines that were.
    """

    dsn: str
    path: Path
    client: str
    clock: Clock
    position: int
    line_count: int = 0
    _connection: Connection | None = field(default=None, init=False)
    _is_away: bool = field(default=False, init=False)

    async def __call__(self, stop: asyncio.Event) -> None:
        """Send what there is until told to stop, and then, for a moment, what is left."""
        rounds = 0
        try:
            while not stop.is_set():
                is_sent = await self._try_round(forget=rounds % FORGET_EVERY_COUNT == 0)
                rounds += 1
                await pause(self.clock, stop, POLL_SECONDS if is_sent else AWAY_SECONDS)
            async with asyncio.timeout(LAST_SECONDS):
                await self._try_round(forget=False)
        except TimeoutError:
            log.warning("the end of the client log stands in the file alone")
        finally:
            if self._connection is not None:
                self._connection.terminate()

    async def _try_round(self, *, forget: bool) -> bool:
        try:
            await self._round()
            if forget and self._connection is not None:
                await self._connection.execute(SQL["forget_client_lines"])
        except _LOST as error:
            if not self._is_away:
                log.warning("the client log is kept in the file", extra={"detail": repr(error)})
            self._is_away = True
            if self._connection is not None:
                self._connection.terminate()
            self._connection = None
            return False
        self._is_away = False
        return True

    async def _round(self) -> None:
        """Send everything that stands in the file now."""
        while entries := self._next():
            if self._connection is None:
                self._connection = await connect(
                    self.dsn, application_name="odin-client-log", session=_WRITER
                )
            found, position = entries
            columns = zip(*(_columns(entry) for entry in found), strict=True)
            lines = list(range(self.line_count + 1, self.line_count + len(found) + 1))
            arguments = [list(one) for one in columns]
            await self._connection.execute(SQL["add_client_lines"], self.client, lines, *arguments)
            self.position, self.line_count = position, lines[-1]

    def _next(self) -> tuple[list[Entry], int] | None:
        """Return the next whole lines and where they end; None if there are none."""
        with self.path.open("rb") as file:
            file.seek(self.position)
            chunk = file.read(CHUNK_BYTES)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if not whole:
            return None
        entries = [msgspec.json.decode(line, type=Entry) for line in whole.splitlines()]
        return entries, self.position + len(whole)


def _columns(entry: Entry) -> tuple[str, ...]:
    """Return a line as the columns of `client_log`; what has no column of its own is a detail."""
    details = {
        "workflow_type": entry.workflow_type,
        "amount_cents": entry.amount_cents,
        "reason": entry.reason,
        "retry_after_ms": entry.retry_after_ms,
        "status": entry.status,
    }
    told = {name: value for name, value in details.items() if value}
    return (
        *(entry.at, entry.request_id, entry.operation, entry.call, entry.workflow_id),
        *(entry.run_id, entry.request_id, msgspec.json.encode(told).decode()),
    )


@asynccontextmanager
async def feeding(
    dsn: str, client_log: ClientLog, client: str, clock: Clock
) -> AsyncIterator[None]:
    """Copy what is written to `client_log` inside the block; without a DSN do nothing."""
    if not dsn:
        yield
        return
    stop = asyncio.Event()
    feed = Feed(dsn, client_log.path, client, clock, client_log.begins_at)
    async with asyncio.TaskGroup() as group:
        group.create_task(feed(stop), name="client log feed")
        try:
            yield
        finally:
            stop.set()
