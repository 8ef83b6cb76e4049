"""Reads what clients and services told of workflow ids, together with what stands of these."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from odin.core.sharding import shard_of
from odin.proof.rows import RequestRow, unpacked_attributes

from .invariants.rows import (
    CallRow,
    ClientRow,
    DeliveryRow,
    RunRef,
    SignalEventRow,
    Told,
)
from .reader import columns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

    from .snapshot import Snapshot

IDS_MAX: Final = 300
Key: TypeAlias = tuple[str, str]


async def clients(snapshot: Snapshot) -> list[ClientRow]:
    """Return every client that told of anything in the window."""
    window = snapshot.window
    rows = await snapshot.fetch("read_clients", window.since_us, window.until_us)
    return [ClientRow(**dict(row)) for row in rows]


async def told(snapshot: Snapshot) -> AsyncIterator[list[Told]]:
    """Yield everything about the workflow ids of the window, up to 300 at a time."""
    window = snapshot.window
    pages = snapshot.batches("read_workflow_ids", IDS_MAX, window.since_us, window.until_us)
    async for page in pages:
        yield await _told(snapshot, [(row["namespace"], row["workflow_id"]) for row in page])


async def _told(snapshot: Snapshot, keys: Sequence[Key]) -> list[Told]:
    calls = calls_of(await snapshot.fetch("read_calls", *columns(keys, 2)))
    runs = await snapshot.fetch("read_run_refs", *columns(keys, 2))
    requests = await _requests(snapshot, keys)
    signals = await _signals(snapshot, runs)
    deliveries = await _deliveries(snapshot, keys)
    refs: dict[Key, list[RunRef]] = defaultdict(list)
    for row in runs:
        refs[row["namespace"], row["workflow_id"]].append(
            RunRef(
                run_id=row["run_id"],
                first_run_id=row["first_run_id"],
                status=row["status"],
                has_parent=row["has_parent"],
            )
        )
    return [
        Told(
            namespace=key[0],
            workflow_id=key[1],
            calls=tuple(calls[key]),
            requests=tuple(requests[key]),
            runs=tuple(refs[key]),
            signals=tuple(signals[key]),
            deliveries=tuple(deliveries[key]),
        )
        for key in keys
    ]


def calls_of(rows: Sequence[asyncpg.Record]) -> dict[Key, list[CallRow]]:
    """Put the lines of each call together, by workflow id; a client's calls in its order."""
    lines: dict[tuple[str, str], list[asyncpg.Record]] = defaultdict(list)
    for row in rows:
        lines[row["client"], row["call_id"]].append(row)
    found: dict[Key, list[CallRow]] = defaultdict(list)
    for (client, call_id), own in lines.items():
        last = own[-1]
        is_ended = last["operation"] != "invoke"
        found[last["namespace"], last["workflow_id"]].append(
            CallRow(
                client=client,
                call_id=call_id,
                kind=last["kind"],
                request_id=last["request_id"],
                run_id=last["run_id"],
                outcome=last["operation"] if is_ended else "unknown",
                began=own[0]["line"],
                ended=last["line"] if is_ended else 0,
                details=_object(last["details"]),
            )
        )
    return found


async def _requests(snapshot: Snapshot, keys: Sequence[Key]) -> dict[Key, list[RequestRow]]:
    found: dict[Key, list[RequestRow]] = defaultdict(list)
    if not snapshot.shard_count:
        return found
    wanted = [(shard_of(*key, snapshot.shard_count), *key) for key in keys]
    for row in await snapshot.fetch("read_requests", *columns(wanted, 3)):
        found[row["namespace"], row["workflow_id"]].append(RequestRow(**dict(row)))
    return found


async def _signals(
    snapshot: Snapshot, runs: Sequence[asyncpg.Record]
) -> dict[Key, list[SignalEventRow]]:
    """Return the signals in the histories, in the order of the runs and of their events."""
    found: dict[Key, list[SignalEventRow]] = defaultdict(list)
    wanted = {
        row["run_id"]: (row["namespace"], row["workflow_id"]) for row in runs if row["signal_count"]
    }
    shards = [row["shard_id"] for row in runs if row["run_id"] in wanted]
    for row in await snapshot.fetch("read_signals", shards, list(wanted)):
        attributes, _ = unpacked_attributes(row["attributes"])
        found[wanted[row["run_id"]]].append(
            SignalEventRow(
                run_id=row["run_id"],
                event_id=row["event_id"],
                request_id=str(attributes.get("request_id", "")),
            )
        )
    return found


async def _deliveries(snapshot: Snapshot, keys: Sequence[Key]) -> dict[Key, list[DeliveryRow]]:
    """Return what the drivers have reported; they know the namespace `default` alone."""
    found: dict[Key, list[DeliveryRow]] = defaultdict(list)
    for row in await snapshot.fetch("read_deliveries", [key[1] for key in keys]):
        found["default", row["workflow_id"]].append(
            DeliveryRow(request_id=row["request_id"], state=row["state"])
        )
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
