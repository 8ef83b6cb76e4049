"""What Postgres tells of a fault, read beside the engines: ranges, charges, pauses, owners."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import asyncpg

# A write of a range is right if its transaction committed after the range began and before the next
# one did. Commit times are given while the shard's row is locked, so they are in that order.
STALE = """
WITH written AS (
    SELECT shard_id, range_id, txid, count(*) AS events
    FROM event
    WHERE recorded_at >= $1
    GROUP BY shard_id, range_id, txid
), begun AS (
    SELECT shard_id, range_id, pg_xact_commit_timestamp(txid::xid) AS at
    FROM shard_term
    WHERE happening IN ('acquired', 'bumped')
)
SELECT written.shard_id, written.range_id, written.events, own.at AS own_at,
    pg_xact_commit_timestamp(written.txid::xid) AS at, next.at AS next_at
FROM written
LEFT JOIN begun AS own USING (shard_id, range_id)
LEFT JOIN begun AS next
    ON next.shard_id = written.shard_id AND next.range_id = written.range_id + 1
WHERE own.at IS NULL
   OR pg_xact_commit_timestamp(written.txid::xid) IS NULL
   OR pg_xact_commit_timestamp(written.txid::xid) < own.at
   OR pg_xact_commit_timestamp(written.txid::xid) > next.at
"""
BACKWARD = """
SELECT count(*) FROM (
    SELECT range_id < lag(range_id) OVER (PARTITION BY run_id ORDER BY event_id) AS is_less
    FROM event
    WHERE recorded_at >= $1
) AS steps
WHERE is_less
"""
CHARGED_AGAIN = """
SELECT idempotency_key FROM mock_ledger
WHERE effect = 'charge'
GROUP BY service, idempotency_key
HAVING count(*) > 1
"""
# The longest time without any event in the shards that each of these nodes owned all the while.
PAUSES = """
WITH kept AS (
    SELECT shard.shard_id, node.node_id
    FROM shard
    JOIN node ON node.incarnation = shard.owner
    WHERE node.node_id = ANY ($1::text[])
      AND NOT EXISTS (
          SELECT FROM shard_term
          WHERE shard_term.shard_id = shard.shard_id AND shard_term.at BETWEEN $2 AND $3
      )
), steps AS (
    SELECT kept.node_id, event.recorded_at,
        lag(event.recorded_at) OVER (PARTITION BY kept.node_id ORDER BY event.recorded_at) AS before
    FROM event JOIN kept USING (shard_id)
    WHERE event.recorded_at BETWEEN $2 AND $3
)
SELECT node_id, max(extract(epoch FROM recorded_at - before)) FROM steps GROUP BY node_id
"""
OWNED = """
SELECT shard.shard_id FROM shard JOIN node ON node.incarnation = shard.owner
WHERE node.node_id = ANY ($1::text[]) AND node.state <> 'dead'
ORDER BY shard.shard_id
"""
OWNERS = """
SELECT node.node_id, count(*) FROM shard JOIN node ON node.incarnation = shard.owner
WHERE node.state = 'alive' AND node.lease_until > clock_timestamp()
GROUP BY node.node_id
"""
# Sessions of an engine that have written in a transaction and not ended it: (pid, transaction).
OPEN_WRITES = """
SELECT activity.pid, activity.backend_xid::text
FROM pg_stat_activity AS activity
JOIN node ON node.incarnation = split_part(activity.application_name, '/', 2)
WHERE node.node_id = $1
  AND activity.application_name LIKE 'odin-engine/%/lane%'
  AND activity.state = 'idle in transaction'
  AND activity.backend_xid IS NOT NULL
"""
FATE = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_xid::text = $2),
    pg_xact_status($2::text::xid8)
"""
RUNS = "SELECT workflow_id, count(*) FROM execution WHERE workflow_id = ANY ($1::text[]) GROUP BY 1"


class Books:
    """Postgres, asked on a fresh connection each time: it is one of the things that get broken."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def now(self) -> datetime:
        [row] = await self._fetch("SELECT clock_timestamp()")
        found = row[0]
        assert isinstance(found, datetime)
        return found

    async def shard_count(self) -> int:
        [row] = await self._fetch("SELECT shard_count FROM cluster")
        return int(row[0])

    async def owned(self, nodes: Sequence[str]) -> list[int]:
        """The shards of these engines."""
        return [int(row[0]) for row in await self._fetch(OWNED, list(nodes))]

    async def owners(self) -> dict[str, int]:
        """How many shards each engine with a live lease owns."""
        return {str(row[0]): int(row[1]) for row in await self._fetch(OWNERS)}

    async def faults(self, since: datetime) -> list[str]:
        """What is wrong with the ranges of events since then, and with all charges."""
        stale = await self._fetch(STALE, since)
        wrong = [f"written outside of its range: {dict(row)}" for row in stale]
        [row] = await self._fetch(BACKWARD, since)
        if row[0]:
            wrong.append(f"{row[0]} events of a range below the one before")
        again = await self._fetch(CHARGED_AGAIN)
        wrong += [f"charged again: {row[0]}" for row in again]
        return wrong

    async def pauses(
        self, nodes: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, float]:
        """The longest pause of each engine in the shards that it kept."""
        rows = await self._fetch(PAUSES, list(nodes), since, until)
        return {str(row[0]): float(row[1] or 0) for row in rows}

    async def moved(self, since: datetime) -> int:
        """How many terms have begun or ended by a lease since then."""
        query = "SELECT count(*) FROM shard_term WHERE happening = 'expired' AND at > $1"
        [row] = await self._fetch(query, since)
        return int(row[0])

    async def open_writes(self, node: str) -> list[tuple[int, str]]:
        """The sessions of the engine that stand between their writes and their COMMIT."""
        return [(int(row[0]), str(row[1])) for row in await self._fetch(OPEN_WRITES, node)]

    async def fate(self, pid: int, transaction: str) -> tuple[bool, str]:
        """Whether that session still holds the transaction, and what became of that."""
        [row] = await self._fetch(FATE, pid, transaction)
        return bool(row[0]), str(row[1])

    async def runs(self, ids: Sequence[str]) -> dict[str, int]:
        """How many runs each workflow id has."""
        return {str(row[0]): int(row[1]) for row in await self._fetch(RUNS, list(ids))}

    async def _fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self._dsn, timeout=10, command_timeout=60)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close(timeout=5)
