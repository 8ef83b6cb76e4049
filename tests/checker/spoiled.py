"""Statements that spoil the tables of the real run, and which invariant must then say no."""

from __future__ import annotations

from tests.checker.real_run import COLLECTED, OPEN

ORDER = """(
    SELECT run_id FROM execution JOIN mock_ledger ON order_id = workflow_id AND effect = 'ship'
    WHERE workflow_type = 'Order' AND status = 'completed' ORDER BY run_id LIMIT 1
)"""
ORDER_ID = f"(SELECT workflow_id FROM execution WHERE run_id = {ORDER})"
LONG_AGO = "clock_timestamp() - interval '1 hour'"
AGAIN = "service, effect, order_id, idempotency_key, amount_cents, body_hash"
PUT_EVENT = """
INSERT INTO event
SELECT shard_id, run_id, next_event_id, '{type}', last_event_at, range_id, txid, '\\x80'
FROM execution JOIN event USING (shard_id, run_id)
WHERE run_id = {run} AND event_id = 1
"""

# What is done → (the table that is changed, the statement, who must notice).
SPOILED: dict[str, tuple[str, str, str]] = {
    "drop an event": (
        "event",
        f"DELETE FROM event WHERE event_id = 4 AND run_id = {ORDER}",
        "I1",
    ),
    "an event after the end": (
        "event",
        PUT_EVENT.format(type="timer_started", run=ORDER),
        "I2",
    ),
    "a stale range": (
        "event",
        f"UPDATE event SET range_id = 0 WHERE event_id = 5 AND run_id = {ORDER}",
        "I3",
    ),
    "a write after the term": (
        "event",
        """
        UPDATE event SET txid = (SELECT max(txid::text::bigint)::text::xid8 FROM event)
        WHERE (shard_id, range_id) IN (
            SELECT shard_id, range_id FROM shard_term WHERE happening = 'expired'
        )
        """,
        "I3",
    ),
    "two overlapping terms": (
        "shard_term",
        f"UPDATE shard_term SET at = {LONG_AGO} WHERE range_id = 2 AND happening = 'acquired'",
        "I4",
    ),
    "a fence that nobody recorded": ("shard", "UPDATE shard SET range_id = range_id + 5", "I4"),
    "an open run that waits for nothing it asked for": (
        "execution",
        f"""
        UPDATE execution SET pending = (
            SELECT pending FROM execution WHERE status = 'completed' LIMIT 1
        ) WHERE workflow_id = '{OPEN}'
        """,
        "I6",
    ),
    "a lost start": (
        "execution",
        f"DELETE FROM execution WHERE run_id = {ORDER}",
        "I7",
    ),
    "a refused start that ran": (
        "request",
        """
        INSERT INTO request (
            shard_id, namespace, workflow_id, request_id, kind, run_id, event_id, body_hash
        )
        SELECT shard, 'default', 'never-1', 'start-refused', 'start', gen_random_uuid(), 1, ''
        FROM generate_series(0, 7) AS shard
        """,
        "I7",
    ),
    "a lost signal": (
        "event",
        """
        UPDATE event SET type = 'timer_fired' WHERE type = 'workflow_execution_signaled'
        AND run_id = (SELECT run_id FROM execution WHERE workflow_id = 'collect-1')
        """.replace("collect-1", COLLECTED),
        "I8",
    ),
    "a lost delivery": (
        "request",
        "DELETE FROM request WHERE kind = 'signal' AND workflow_id LIKE 'order-%'",
        "I8",
    ),
    "a run that is stuck": (
        "execution",
        f"""
        UPDATE execution SET due_at = {LONG_AGO}, last_event_at = {LONG_AGO}
        WHERE workflow_id = '{OPEN}'
        """,
        "I9",
    ),
    "a double charge": (
        "mock_ledger",
        f"""
        INSERT INTO mock_ledger ({AGAIN})
        SELECT {AGAIN} FROM mock_ledger WHERE effect = 'charge' AND order_id = {ORDER_ID}
        """,
        "I10",
    ),
    "a charge that is gone": (
        "mock_ledger",
        f"DELETE FROM mock_ledger WHERE effect = 'charge' AND order_id = {ORDER_ID}",
        "I11",
    ),
    "an effect of nobody": (
        "mock_ledger",
        """
        INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, body_hash)
        VALUES ('shipping', 'ship', 'nobody', 'nobody/00000000-0000-0000-0000-000000000000/1', '')
        """,
        "I11",
    ),
    "swapped order": (
        "mock_ledger",
        f"""
        INSERT INTO mock_ledger ({AGAIN})
        SELECT {AGAIN} FROM mock_ledger WHERE effect = 'reserve' AND order_id = {ORDER_ID}
        """,
        "I12",
    ),
    "stock that vanished": (
        "mock_stock",
        "UPDATE mock_stock SET available = available - 1 WHERE sku = 'sku-03'",
        "I13",
    ),
    "an old outbox row of no run": (
        "outbox",
        f"""
        INSERT INTO outbox (shard_id, destination, body, created_at)
        SELECT shard_id, 'w:default',
            '\\x96a177'::bytea || '\\x00'::bytea || '\\x01'::bytea || '\\xd924'::bytea
            || convert_to(gen_random_uuid()::text, 'UTF8') || '\\x01'::bytea || '\\x01'::bytea,
            {LONG_AGO}
        FROM execution WHERE run_id = {ORDER}
        """,
        "I14",
    ),
    "a missing outbox row": (
        "execution",
        f"""
        UPDATE execution SET has_task = true, due_at = {LONG_AGO} WHERE workflow_id = '{OPEN}'
        """,
        "I14",
    ),
    "a successor that is gone": (
        "execution",
        """
        DELETE FROM execution WHERE run_id = (
            SELECT run_id FROM execution WHERE workflow_type = 'subscription'
            AND run_id <> first_run_id ORDER BY started_at LIMIT 1
        )
        """,
        "I19",
    ),
    "a status that went back": (
        "execution",
        f"""
        UPDATE execution SET status = 'failed' WHERE workflow_id = '{COLLECTED}'
        """,
        "I21",
    ),
}

TABLES = sorted({table for table, _, _ in SPOILED.values()})
KEEP = [f"CREATE TABLE kept_{name} AS SELECT * FROM {name}" for name in TABLES]
HEAL = {
    name: (
        f"DELETE FROM {name}",
        f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{name}",
    )
    for name in TABLES
}
