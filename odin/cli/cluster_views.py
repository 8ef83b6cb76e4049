"""`odin cluster`, `odin shards`, `odin workers`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from odin.cli.connecting import get_json
from odin.cli.output import chat, is_for_people, span, write_json, write_table
from odin.cli.shared import current


def cluster() -> int:
    """Show the engines: state, age of the lease, shards owned."""
    found = get_json("/v1/cluster")
    if current().as_json:
        write_json(found)
        return 0
    if is_for_people():
        chat(f"{found['mode']}, {found['broker']}, {found['shard_count']} shards")
    columns = ("NODE", "STATE", "LEASE AGE", "SHARDS", "ADDRESS", "INCARNATION")
    write_table(columns, [_node(one) for one in found["nodes"]])
    return 0


def _node(one: dict[str, Any]) -> tuple[str, ...]:
    age = one.get("lease_age")
    return (
        str(one["node_id"]),
        str(one["state"]),
        "-" if age is None else span(age),
        str(one.get("shard_count", "-")),
        str(one["address"]),
        str(one["incarnation"]),
    )


def shards() -> int:
    """Show who owns which shard."""
    found = get_json("/v1/shards")["items"]
    if current().as_json:
        write_json(found)
        return 0
    rows = [
        (
            str(one["shard_id"]),
            str(one["range_id"]),
            one.get("node_id") or "nobody",
            one.get("heir") or "-",
        )
        for one in found
    ]
    write_table(("SHARD", "RANGE", "NODE", "HEIR"), rows)
    if is_for_people():
        counts = Counter(row[2] for row in rows)
        chat(", ".join(f"{node} {count}" for node, count in sorted(counts.items())))
    return 0


def workers() -> int:
    """Show the workers that are linked to the engine that answers."""
    found = get_json("/v1/workers")["items"]
    if current().as_json:
        write_json(found)
        return 0
    columns = ("WORKER", "QUEUES", "WORKFLOWS", "ACTIVITIES", "WARM", "BUILD", "INCARNATION")
    write_table(columns, [_worker(one) for one in found])
    return 0


def _worker(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(one["name"]),
        ",".join(one.get("task_queues", ())),
        _slots(one, "workflow"),
        _slots(one, "activity"),
        str(one.get("warm_runs", 0)),
        str(one.get("build_id") or "-"),
        str(one["incarnation"]),
    )


def _slots(one: dict[str, Any], kind: str) -> str:
    whole = one.get(f"{kind}_slots", 0)
    free = one.get(f"{kind}_slots_free")
    return f"{whole} slots" if free is None else f"{whole - free}/{whole} busy"
