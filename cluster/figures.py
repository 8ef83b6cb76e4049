"""The numbers of the footer: what the parts tell of themselves, and what Postgres knows for sure.

Telemetry is lossy and may be late; a number that nobody has confirmed in the last seconds is shown
as unknown, never as it was. What matters, "charged twice", is counted in the mocks' books.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import asyncpg

from odin.runtime.postgres import Session, connect
from odin.runtime.sql import load_queries
from odin.runtime.telemetry import Snapshot, read_telemetry
from odin.runtime.valkey import ValkeyDownError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Connection

SQL: Final = load_queries(__package__)
SESSION: Final = Session(statement_timeout=2.0, command_timeout=3.0, read_only=True)
OVERLAP_SECONDS: Final = 15.0
# A part that has just begun has not told of itself yet, and nobody need be alarmed.
QUIET_SECONDS: Final = 6.0
OWNED: Final = "odin_shard_owned"
REFUSED: Final = "odin_admission_refused_total"


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the cluster; None stands for "not known at the moment".

    Attributes:
        shards: Engine → shards that it owns.
        in_flight: Open executions.
        finished: Executions that ended in the last minute.
        refused: Starts refused by admission since the engines began.
        charged_twice: Orders charged more than once since the cluster was started.
        stale: Whose telemetry is old or missing.
        postgres_answers: Whether Postgres did.
        telemetry_answers: Whether Valkey did.
    """

    shards: Mapping[str, int | None] = field(default_factory=dict)
    in_flight: int | None = None
    finished: int | None = None
    refused: int | None = None
    charged_twice: int = 0
    stale: Sequence[str] = ()
    postgres_answers: bool = True
    telemetry_answers: bool = True


class Watcher:
    """Looks at the cluster; one connection, opened again when it breaks."""

    def __init__(
        self, dsn: str, valkey_url: str, engines: Sequence[str], others: Sequence[str], clock: Clock
    ) -> None:
        """Remember where to look.

        Args:
            dsn: Postgres.
            valkey_url: Where telemetry is.
            engines: The engines' node ids.
            others: Names of other parts that are to tell of themselves.
            clock: Says how much the last look missed.
        """
        self._dsn = dsn
        self._valkey_url = valkey_url
        self._engines = engines
        self._others = others
        self._clock = clock
        self._connection: Connection | None = None
        self._looked_at = self._began = clock.boottime()
        self._charged_again: set[str] = set()
        self._totals: dict[str, Total] = {}

    async def look(self) -> Figures:
        """Return the numbers of this moment."""
        snapshots, telemetry_answers = await self._telemetry()
        told = {one.node: one for one in snapshots if not one.is_stale}
        shards = {name: _gauge(told.get(name), OWNED) for name in self._engines}
        for name in self._engines:
            refused = _gauge(told.get(name), REFUSED)
            if refused is not None:
                self._totals.setdefault(name, Total()).see(refused)
        in_flight, finished, postgres_answers = await self._books()
        is_early = self._clock.boottime() - self._began < QUIET_SECONDS
        everybody = (*self._engines, *self._others)
        return Figures(
            shards=shards,
            in_flight=in_flight,
            finished=finished,
            refused=sum(one.value for one in self._totals.values()) if self._totals else None,
            charged_twice=len(self._charged_again),
            stale=[] if is_early else [n for n in everybody if n not in told],
            postgres_answers=postgres_answers,
            telemetry_answers=telemetry_answers,
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _telemetry(self) -> tuple[list[Snapshot], bool]:
        try:
            return await read_telemetry(self._valkey_url), True
        except ValkeyDownError:
            return [], False

    async def _books(self) -> tuple[int | None, int | None, bool]:
        """Return what is in flight and finished, and whether Postgres answered."""
        now = self._clock.boottime()
        try:
            if self._connection is None:
                self._connection = await connect(
                    self._dsn, application_name="odin-cluster", session=SESSION
                )
            in_flight = await self._connection.fetchval(SQL["count_in_flight"])
            finished = await self._connection.fetchval(SQL["count_finished"])
            window = now - self._looked_at + OVERLAP_SECONDS
            again = await self._connection.fetch(SQL["read_charged_again"], window)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self.close()
            return None, None, False
        self._looked_at = now
        self._charged_again |= {str(row["order_id"]) for row in again}
        return int(in_flight), int(finished), True


@dataclass(slots=True)
class Total:
    """A counter that begins anew when its process does, summed over all processes."""

    before: int = 0
    last: int = 0

    @property
    def value(self) -> int:
        """The sum."""
        return self.before + self.last

    def see(self, count: int) -> None:
        """Take note of the counter as it is."""
        if count < self.last:
            self.before += self.last
        self.last = count


def _gauge(snapshot: Snapshot | None, name: str) -> int | None:
    value = snapshot.gauges.get(name) if snapshot else None
    return None if value is None else int(value)
