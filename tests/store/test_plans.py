"""Every statement is valid, and is planned by its index: on an empty and on a full table alike."""

import json
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from engine.store import Store
from engine.store.connections import READS, SQL
from odin.runtime.postgres import connect

from .support import run, starting

RUN_ID = "'00000000-0000-7000-8000-000000000000'"
OPEN_ONLY = {"execution": {"execution_open"}}
# Statement, its arguments, and the index that each table is read by.
HOT = [
    ("load_execution", f"0, {RUN_ID}", {"execution": {"execution_pkey"}}),
    ("load_many", f"'{{0}}', ARRAY[{RUN_ID}]::uuid[]", {"execution": {"execution_pkey"}}),
    ("load_open", "0, 'default', 'order-1'", {"execution": {"execution_open"}}),
    (
        "load_latest",
        "0, 'default', 'order-1'",
        {"execution": {"execution_open", "execution_latest", "execution_pkey"}},
    ),
    ("load_request", "0, 'default', 'order-1', 'r1'", {"request": {"request_pkey"}}),
    ("events", f"0, {RUN_ID}, 0, 100, 100, 100", {"event": {"event_pkey"}}),
    ("events_newest_first", f"0, {RUN_ID}, 100, 100, 100", {"event": {"event_pkey"}}),
    ("due_before", f"'{{0,1}}', 0, -1, {RUN_ID}, 10", {"execution": {"execution_due"}}),
    ("scheduled_tasks", f"0, {RUN_ID}, 10", {"execution": {"execution_has_task"}}),
    ("outbox_due", "'{0,1}', 0, 10", {"outbox": {"outbox_due"}}),
    ("outbox_all", "0, 0, 10", {"outbox": {"outbox_pkey"}}),
    ("open_counts", "", OPEN_ONLY),
    (
        "lookup_many",
        f"'{{0}}', '{{default}}', '{{order-1}}', ARRAY[{RUN_ID}]::uuid[], '{{r1}}'",
        {
            "execution": {"execution_open", "execution_latest", "execution_pkey"},
            "request": {"request_pkey"},
        },
    ),
]
NODES = ("Index Scan", "Index Only Scan", "Bitmap Index Scan", "Seq Scan")


def nodes(plan: dict[str, Any], table: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield (kind, table, index, condition) of every scan in the plan."""
    table = plan.get("Relation Name", table)
    if plan["Node Type"] in NODES:
        index = plan.get("Index Name", "")
        yield plan["Node Type"], table, index, plan.get("Index Cond", "")
    for inner in plan.get("Plans", ()):
        yield from nodes(inner, table)


@pytest.fixture
async def full(store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]") -> None:
    """Make the tables large: 20,000 runs, 60,000 events, 20,000 requests and outbox rows."""
    await store.commit(starting(store.incarnation, terms, run(0, "seed")))
    await admin.execute(
        """
        CREATE TEMP TABLE seed AS SELECT * FROM execution;
        CREATE TEMP TABLE filled AS
            SELECT n, n % 8 AS shard, gen_random_uuid() AS run FROM generate_series(1, 20000) AS n;
        UPDATE seed
            SET status = 'completed', closed_at = started_at, due_at = NULL, has_task = false;
        """
    )
    columns = [
        row[0]
        for row in await admin.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'execution'::regclass"
            " AND attnum > 0 ORDER BY attnum"
        )
    ]
    new = {
        "shard_id": "shard",
        "run_id": "run",
        "workflow_id": "'order-' || n",
        "started_at": "seed.started_at + n * interval '1 second'",
        "status": "CASE WHEN n % 20 = 0 THEN 'running' ELSE 'completed' END",
        "closed_at": "CASE WHEN n % 20 = 0 THEN NULL ELSE seed.closed_at END",
        "due_at": "CASE WHEN n % 20 = 0 THEN seed.started_at + n * interval '1 second' END",
        "has_task": "n % 60 = 0",
    }
    chosen = ", ".join(new.get(column, f"seed.{column}") for column in columns)
    await admin.execute(
        f"""
        INSERT INTO execution SELECT {chosen} FROM filled CROSS JOIN seed;
        INSERT INTO event
            (shard_id, run_id, event_id, type, recorded_at, range_id, txid, attributes)
            SELECT shard, run, e, 'timer_fired', now(), 1, pg_current_xact_id(), ''
            FROM filled CROSS JOIN generate_series(1, 3) AS e;
        INSERT INTO request (shard_id, namespace, workflow_id, request_id, kind, run_id, event_id,
                body_hash)
            SELECT shard, 'default', 'order-' || n, 'r1', 'start', run, 1, '' FROM filled;
        INSERT INTO outbox (shard_id, destination, body) SELECT shard, 'w:default', '' FROM filled;
        ANALYZE;
        """
    )


async def plan_of(dsn: str, name: str, arguments: str) -> list[tuple[str, str, str, str]]:
    """Return the scans of the plan that would be kept for good, in a session of the reads."""
    connection = await connect(dsn, application_name="plans", session=READS)
    try:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE statement AS {SQL[name]}")
        call = f"EXECUTE statement({arguments})" if arguments else "EXECUTE statement"
        text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {call}")
    finally:
        await connection.close()
    return list(nodes(json.loads(text)[0]["Plan"]))


def check(scans: list[tuple[str, str, str, str]], wanted: dict[str, set[str]]) -> None:
    """Assert that each table is read by its indexes alone, and never without a condition."""
    for kind, table, index, condition in scans:
        assert condition or wanted is OPEN_ONLY, f"{index} is read from end to end"
        assert kind != "Seq Scan" or table not in wanted, f"{table} is scanned"
        known = set().union(*wanted.values())
        assert not index or index in known, f"{index} is none of {known}"
    used = {index for _, _, index, _ in scans}
    assert all(used & indexes for indexes in wanted.values())


@pytest.mark.parametrize(("name", "arguments", "wanted"), HOT, ids=[one[0] for one in HOT])
@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_a_hot_read_uses_its_index_on_an_empty_table(
    admin: "asyncpg.Connection[Any]",
    dsn: str,
    name: str,
    arguments: str,
    wanted: dict[str, set[str]],
    *,
    is_analyzed: bool,
) -> None:
    """An empty table that was looked at is thought to stay empty, one that never was is not."""
    if is_analyzed:
        await admin.execute("VACUUM ANALYZE")
    check(await plan_of(dsn, name, arguments), wanted)


async def test_hot_reads_use_their_indexes_on_full_tables(dsn: str, full: None) -> None:
    for name, arguments, wanted in HOT:
        check(await plan_of(dsn, name, arguments), wanted)


async def test_lists_walk_an_index_in_the_order_of_the_list(dsn: str, full: None) -> None:
    nothing = "NULL, NULL, NULL, NULL, NULL, NULL"
    for status, index in (("NULL", "execution_by_time"), ("'running'", "execution_by_status")):
        connection = await connect(dsn, application_name="plans", session=READS)
        call = f"'default', {status}, {nothing}, NULL, {RUN_ID}, 50"
        await connection.execute("SET plan_cache_mode = force_custom_plan")
        await connection.execute(f"PREPARE statement AS {SQL['list_executions']}")
        text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE statement({call})")
        await connection.close()
        scans = list(nodes(json.loads(text)[0]["Plan"]))
        assert [scan[2] for scan in scans] == [index]


async def committed_plans(
    store: Store, terms: dict[int, int], dsn: str
) -> list[tuple[str, str, str, str]]:
    """Return the scans of the statements inside `commit_group_rows`, as the lane ran them."""
    execution = run(0, "planned")
    await store.commit(starting(store.incarnation, terms, execution))
    messages = await explained(store)
    execution.next_event_id = 3
    group = starting(store.incarnation, terms)
    group.terms = {0: terms[0]}
    group.updates[execution.run_id] = execution
    group.outbox_deletes = [(0, 1)]
    await store.commit(group)
    return scans_of(messages)


async def explained(store: Store) -> list[str]:
    """Have the lane explain every statement from now on; return where the plans will stand."""
    lane = store._lanes[0]  # noqa: SLF001 - the plans belong to the session of the lane
    messages: list[str] = []
    async with lane.connection() as connection:
        connection.add_log_listener(lambda _, message: messages.append(str(message)))
        await connection.execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;"
            "SET auto_explain.log_nested_statements = on; SET auto_explain.log_format = json;"
            "SET client_min_messages = log"
        )
    return messages


def scans_of(messages: list[str]) -> list[tuple[str, str, str, str]]:
    scans: list[tuple[str, str, str, str]] = []
    for message in messages:
        if found := re.search(r"plan:\s*(\{.*\})", message, re.DOTALL):
            scans.extend(nodes(json.loads(found[1])["Plan"]))
    return scans


def check_commit(scans: list[tuple[str, str, str, str]]) -> None:
    indexes = {index for kind, _, index, _ in scans if kind != "Seq Scan"}
    assert indexes == {"shard_pkey", "execution_pkey", "outbox_pkey"}
    assert all(condition for *_, condition in scans), "an index is read from end to end"


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_a_commit_is_planned_by_primary_keys_on_empty_tables(
    admin: "asyncpg.Connection[Any]",
    dsn: str,
    store: Store,
    terms: dict[int, int],
    *,
    is_analyzed: bool,
) -> None:
    if is_analyzed:
        await admin.execute("VACUUM ANALYZE")
    check_commit(await committed_plans(store, terms, dsn))


async def test_a_commit_is_planned_by_primary_keys_on_full_tables(
    dsn: str, store: Store, terms: dict[int, int], full: None
) -> None:
    check_commit(await committed_plans(store, terms, dsn))


RETENTION = {
    "execution": {"execution_closed", "execution_pkey", "execution_latest"},
    "event": {"event_pkey"},
    "request": {"request_expires", "request_pkey"},
    "outbox": {"outbox_pkey", "outbox_due"},
    "shard": {"shard_pkey"},
}


async def check_retention(store: Store, terms: dict[int, int]) -> None:
    """Delete a batch, and look at how each of its statements found its rows."""
    messages = await explained(store)
    deleted = await store.delete_closed(terms, before_us=2**52, limit=10)
    assert deleted.runs
    check(scans_of(messages), RETENTION)


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_retention_is_planned_by_indexes_on_small_tables(
    admin: "asyncpg.Connection[Any]", store: Store, terms: dict[int, int], *, is_analyzed: bool
) -> None:
    if is_analyzed:
        await admin.execute("VACUUM ANALYZE")
    old = run(0, "old", status="completed", closed_us=4_000_000_000_000_000)
    old.workflow_task.state = "none"
    await store.commit(starting(store.incarnation, terms, old))
    await check_retention(store, terms)


async def test_retention_is_planned_by_indexes_on_full_tables(
    store: Store, terms: dict[int, int], admin: "asyncpg.Connection[Any]", full: None
) -> None:
    await admin.execute("DELETE FROM outbox")
    await check_retention(store, terms)


async def test_every_named_statement_is_valid_against_the_schema(
    admin: "asyncpg.Connection[Any]",
) -> None:
    for name, text in SQL.items():
        statement = await admin.prepare(text)
        assert statement.get_attributes() is not None, name
