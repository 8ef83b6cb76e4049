"""The proof of one run reads that run: by its indexes, on empty and on full tables alike."""

from typing import Any

import asyncpg
import pytest

from .test_plans import RUN_ID, check, full, plan_of  # noqa: F401 - full is a fixture

PLACE = "0, 'default', 'order-1'"
CHAIN_OF = f"'default', 'order-1', {RUN_ID}, 0, {RUN_ID}"
CHAIN = {"execution": {"execution_latest"}}
READS = [
    (
        "proof_target",
        f"{PLACE}, NULL",
        {"execution": {"execution_open", "execution_latest", "execution_pkey"}},
    ),
    ("proof_runs", f"{CHAIN_OF}, 100", CHAIN),
    ("proof_runs_before", CHAIN_OF, CHAIN),
    ("proof_events", f"0, {RUN_ID}, 1, 100, 100", {"event": {"event_pkey"}}),
    ("proof_terms", "0, 5, 6, 100", {"shard_term": {"shard_term_pkey"}}),
    ("proof_requests", f"{PLACE}, {RUN_ID}, 100", {"request": {"request_pkey"}}),
    ("proof_outbox", "0, 'run', 100", {"outbox": {"outbox_pkey"}}),
    ("proof_orders", "'order-1/run/', 'order-1/run0', 9", {"mock_ledger": {"mock_ledger_key"}}),
    ("proof_effects", "'{order-1}', 100", {"mock_ledger": {"mock_ledger_order"}}),
]


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_the_reads_of_a_proof_use_their_indexes_on_empty_tables(
    admin: "asyncpg.Connection[Any]", dsn: str, *, is_analyzed: bool
) -> None:
    if is_analyzed:
        await admin.execute("VACUUM ANALYZE")
    for name, arguments, wanted in READS:
        check(await plan_of(dsn, name, arguments), wanted)
    # The oldest row alone: the first entry of its index.
    assert [scan[2] for scan in await plan_of(dsn, "proof_server", "")] == ["mock_ledger_at"]


@pytest.mark.usefixtures("full")
async def test_the_reads_of_a_proof_use_their_indexes_on_full_tables(
    admin: "asyncpg.Connection[Any]", dsn: str
) -> None:
    await admin.execute(
        """
        INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, body_hash)
            SELECT 'payments', 'charge', 'order-' || n, 'order-' || n || '/run/1', ''
            FROM generate_series(1, 20000) AS n;
        INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
            SELECT n % 8, 100 + n, 'acquired', 'i', 'n' FROM generate_series(1, 20000) AS n;
        ANALYZE;
        """
    )
    for name, arguments, wanted in READS:
        check(await plan_of(dsn, name, arguments), wanted)
    # The oldest row alone: the first entry of its index.
    assert [scan[2] for scan in await plan_of(dsn, "proof_server", "")] == ["mock_ledger_at"]
