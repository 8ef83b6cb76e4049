"""The same calls on the model and on a real Postgres, and how their outcomes are compared.

Three incarnations of two nodes; four shards. What the engine never does itself (a lease that runs
out, a release long ago) is done to both by hand. The model's clock follows the real one; instants
are chosen so that a call's few milliseconds decide nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import astuple, dataclass, is_dataclass
from typing import Any, Final

import asyncpg
import msgspec

from engine.store import Store, WriteRaisedError
from engine.store.connections import PoolSizes
from odin.errors import OdinError

from .loop import SimLoop
from .store import SimDatabase

SHARDS: Final = 4
INCARNATIONS: Final = ("a" * 16, "b" * 16, "c" * 16)
NODE_IDS: Final = ("node-1", "node-2", "node-1")
LEASE_US: Final = 15_000_000
SECOND_US: Final = 1_000_000
_SIZES: Final = PoolSizes(lanes=1, control=1, reads=1)
_CLOCK_US: Final = 3_000_000
"""Instants taken from a clock may differ by this much between the two."""
_EMPTY: Final = """
DELETE FROM cluster; DELETE FROM node; DELETE FROM shard; DELETE FROM shard_term;
DELETE FROM execution; DELETE FROM event; DELETE FROM outbox; DELETE FROM request;
DELETE FROM dead_letter; SELECT setval('outbox_id_seq', 1, false)
"""


class Real:
    """Postgres, with a store for each incarnation."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self._dsn = dsn
        self._run = runner.run
        self._stack = AsyncExitStack()
        self.stores: list[Store] = []

    def open(self) -> None:
        """Connect."""
        self._run(self._open())

    async def _open(self) -> None:
        self._admin: asyncpg.Connection[Any] = await asyncpg.connect(self._dsn)
        self.stores = [
            await self._stack.enter_async_context(Store(self._dsn, one, sizes=_SIZES))
            for one in INCARNATIONS
        ]

    def close(self) -> None:
        """Disconnect."""
        self._run(self._stack.aclose())
        self._run(self._admin.close())

    def begin(self) -> None:
        """Empty the tables and make the cluster."""
        self._run(self._admin.execute(_EMPTY))
        self._run(self.stores[0].open_cluster(SHARDS, "sharded"))

    def call(self, who: int, ask: Callable[[Store], Awaitable[Any]]) -> Any:  # noqa: ANN401 - any outcome
        """Return what a call comes to."""
        return self._run(_outcome(ask(self.stores[who])))

    def set_lease(self, incarnation: str, lease_until_us: int) -> None:
        """Make a lease end then."""
        self._run(
            self._admin.execute(
                "UPDATE node SET lease_until = from_us($2) WHERE incarnation = $1",
                incarnation,
                lease_until_us,
            )
        )

    def set_released(self, shard_id: int, released_us: int) -> None:
        """Make a release have happened then."""
        self._run(
            self._admin.execute(
                "UPDATE shard SET released_at = from_us($2)"
                " WHERE shard_id = $1 AND released_at IS NOT NULL",
                shard_id,
                released_us,
            )
        )

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every table's rows, sorted."""
        return self._run(self._tables())

    async def _tables(self) -> dict[str, list[tuple[Any, ...]]]:
        found = {}
        for name, query in _TABLES.items():
            rows = [tuple(row) for row in await self._admin.fetch(query)]
            found[name] = sorted(rows, key=repr)
        return found


class Model:
    """The simulated database, with a store for each incarnation."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.database = SimDatabase(self.loop)
        self.database.clock.now_us = now_us  # type: ignore[method-assign] # it follows the real one
        store_type = self.database.store_type("host")
        self.stores = [store_type("sim", one, sizes=_SIZES) for one in INCARNATIONS]
        for store in self.stores:
            self.loop.run_until(store.open())
        self.loop.run_until(self.stores[0].open_cluster(SHARDS, "sharded"))

    def close(self) -> None:
        """End it."""
        self.loop.close()

    def call(self, who: int, ask: Callable[[Store], Awaitable[Any]]) -> Any:  # noqa: ANN401 - any outcome
        """Return what a call comes to."""
        return self.loop.run_until(_outcome(ask(self.stores[who])))

    def set_lease(self, incarnation: str, lease_until_us: int) -> None:
        """Make a lease end then."""
        row = self.database.tables.node.get(incarnation)
        if row is not None:
            row.lease_until_us = lease_until_us

    def set_released(self, shard_id: int, released_us: int) -> None:
        """Make a release have happened then."""
        row = self.database.tables.shard[shard_id]
        if row.released_us is not None:
            row.released_us = released_us

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every table's rows, sorted, in the columns of `_TABLES`."""
        tables = self.database.tables
        found: dict[str, list[Any]] = {
            "cluster": [tables.cluster],
            "node": list(tables.node.values()),
            "shard": list(tables.shard.values()),
            "shard_term": list(tables.shard_term.values()),
            "execution": list(tables.execution.values()),
            "event": tables.events,
            "outbox": list(tables.outbox.values()),
            "request": list(tables.request.values()),
            "dead_letter": tables.dead_letter,
        }
        return {
            name: sorted(
                (row if isinstance(row, tuple) else astuple(row) for row in rows), key=repr
            )
            for name, rows in found.items()
        }


_TABLES: Final = {
    "cluster": "SELECT shard_count, mode FROM cluster",
    "node": "SELECT incarnation, node_id, address, state, to_us(lease_until), to_us(started_at)"
    " FROM node",
    "shard": "SELECT shard_id, range_id, owner, heir, to_us(released_at) FROM shard",
    "shard_term": "SELECT shard_id, range_id, happening, incarnation, node_id, to_us(at),"
    " txid::text::bigint FROM shard_term",
    "execution": "SELECT shard_id, namespace, workflow_id, run_id::text, first_run_id::text,"
    " workflow_type, task_queue, origin, build_id, status, next_event_id, state_token, task_token,"
    " to_us(started_at), to_us(closed_at), to_us(last_event_at), to_us(run_deadline_at),"
    " to_us(execution_deadline_at), task_timeout_ms, cancel_requested, last_message_event_id,"
    " last_visible_event_id, signal_count, history_bytes, parent, memo, search_attributes, pending,"
    " to_us(due_at), has_task FROM execution",
    "event": "SELECT shard_id, run_id::text, event_id, type, to_us(recorded_at), range_id,"
    " txid::text::bigint, attributes FROM event",
    "outbox": "SELECT shard_id, id, destination, body, to_us(created_at), publish_count,"
    " to_us(next_publish_at) FROM outbox",
    "request": "SELECT shard_id, namespace, workflow_id, request_id, kind, run_id::text, event_id,"
    " body_hash, to_us(created_at), to_us(expires_at) FROM request",
    "dead_letter": "SELECT shard_id, kind, run_id, number, attempt, reason FROM dead_letter",
}
_TXID_COLUMN: Final = {"shard_term": 6, "event": 6}


def now_us() -> int:
    """Return the machine's time of day, which the real server's clock reads too."""
    return time.time_ns() // 1_000


async def _outcome(call: Awaitable[Any]) -> Any:  # noqa: ANN401 - any outcome
    """Return what a call returned, or what it raised, as a value."""
    try:
        return await call
    except WriteRaisedError as error:
        return ("raised", error.details["sqlstate"])
    except OdinError as error:
        return (type(error).__name__, error.reason)


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any outcome
    """Return whether two outcomes agree; instants near now may differ by a little."""
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool):
        near = abs(one - other) <= _CLOCK_US and abs(one - now_us()) < 400 * 86_400 * SECOND_US
        return one == other or (near and one % SECOND_US != 0)
    if isinstance(one, msgspec.Struct):
        return type(one) is type(other) and same(
            msgspec.structs.astuple(one), msgspec.structs.astuple(other)
        )
    if is_dataclass(one) and not isinstance(one, type):
        return type(one) is type(other) and same(_fields(one), _fields(other))
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(map(same, one, other))
        )
    return bool(one == other)


def _fields(one: Any) -> list[Any]:  # noqa: ANN401 - a dataclass
    return [getattr(one, name) for name in one.__dataclass_fields__]


def by_rank(tables: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the tables with each transaction id replaced by its place among all of them."""
    ids = sorted({row[at] for name, at in _TXID_COLUMN.items() for row in tables[name]})
    rank = {txid: place for place, txid in enumerate(ids)}
    ranked = dict(tables)
    for name, at in _TXID_COLUMN.items():
        rows = [(*row[:at], rank[row[at]], *row[at + 1 :]) for row in tables[name]]
        ranked[name] = sorted(rows, key=repr)
    return ranked


@dataclass(slots=True)
class Scene:
    """Both of them, and what the calls so far have made."""

    real: Real
    model: Model
    began_us: int
    made: int = 0

    def call(self, what: str, who: int, ask: Callable[[Store], Awaitable[Any]]) -> Any:  # noqa: ANN401 - any outcome
        """Make a call on both, fail if they differ, and return the outcome."""
        real, model = self.real.call(who, ask), self.model.call(who, ask)
        assert same(real, model), f"{what} by {who}: Postgres says {real}, the model {model}"
        return model

    def check_tables(self) -> None:
        """Fail unless both hold the same rows."""
        real, model = by_rank(self.real.tables()), by_rank(self.model.tables())
        for name, rows in real.items():
            assert same(rows, model[name]), f"{name}: Postgres has {rows}, the model {model[name]}"


__all__ = ["Model", "Real", "Scene", "now_us", "same"]
