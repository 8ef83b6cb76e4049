"""Real engines on the simulated database: they take shards, decide, commit, die, and take over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.membership import Membership
from engine.node import Node
from engine.relaying import relay_module
from odin.core.requests import Started, StartWorkflow
from odin.errors import OdinError

from .clocks import SimClock
from .ids import SimIds
from .loop import Process, SimLoop
from .store import Call, Fault, Odds, SimDatabase

SHARDS = 8
ROOT = Path(__file__).parents[2]


class SimEngine:
    """One incarnation of a real engine, without HTTP, links and relay."""

    def __init__(self, database: SimDatabase, name: str) -> None:
        self.database = database
        self.name = name
        self.process = Process(database.loop, name)
        self.clock = SimClock(database.loop)
        self.ids = SimIds(database.loop, name, self.clock)
        self.incarnation = self.ids.incarnation()
        self.stop = asyncio.Event()
        self.node: Node | None = None
        self.task = self.process.create_task(self._live(), name="engine")

    async def _live(self) -> None:
        store_type = self.database.store_type(self.name)
        async with store_type("sim", self.incarnation, clock=self.clock) as store:
            cluster = await store.open_cluster(SHARDS, "sharded")
            membership = Membership(
                store,
                self.clock,
                incarnation=self.incarnation,
                node_id=self.name,
                address=f"http://{self.name}",
            )
            await membership.register()
            self.node = Node(
                store,
                self.clock,
                self.ids,
                membership=membership,
                shard_count=cluster.shard_count,
                make_row=relay_module("transport").OutboxRow,
                keep_us=6 * 3_600_000_000,
            )
            async with asyncio.TaskGroup() as group:
                for name, loop in self.node.loops().items():
                    group.create_task(loop(self.stop), name=name)


def owners(database: SimDatabase) -> set[str | None]:
    """Return who has the shards."""
    rows = database.tables.shard.values()
    return {row.owner for row in rows} if rows else {None}


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def ask(engines: list[SimEngine], request: StartWorkflow) -> Started:
    """Ask whoever owns the shard until it answers, like a client."""
    while True:
        for engine in engines:
            node = engine.node
            if node is None or not engine.process.is_alive or engine.process.is_frozen:
                continue
            try:
                async with asyncio.timeout(5.0):
                    answer = await node.handler.ask(request)
            except (OdinError, TimeoutError):
                continue
            assert isinstance(answer, Started)
            return answer
        await asyncio.sleep(0.1)


def start_of(number: int) -> StartWorkflow:
    """Return a request that starts a run."""
    return StartWorkflow(
        workflow_id=f"order-{number}", request_id=f"request-{number}", workflow_type="order"
    )


def check_tables(database: SimDatabase, starts: int) -> None:
    """Fail unless every start stands once, with dense events in the order of its ranges."""
    tables = database.tables
    assert len(tables.execution) == len(tables.request) == starts
    for rows in tables.event.values():
        assert sorted(rows) == list(range(1, len(rows) + 1))
        ranges = [rows[event_id].range_id for event_id in sorted(rows)]
        assert ranges == sorted(ranges)
    began = [
        (shard_id, range_id)
        for shard_id, range_id, happening in tables.shard_term
        if happening in ("acquired", "bumped")
    ]
    assert sorted(set(began)) == sorted(began)
    for row in tables.shard.values():
        assert {one for shard, one in began if shard == row.shard_id} == set(
            range(1, row.range_id + 1)
        )


def simulate(main: Callable[[SimDatabase], Any], seed: int = 1) -> SimLoop:
    """Run `main` on a database of its own, and end everything."""
    loop = SimLoop(seed)
    database = SimDatabase(loop)
    try:
        loop.run_until(main(database), limit_seconds=600.0)
        assert loop.reported == []
    finally:
        loop.close()
    return loop


def test_an_engine_takes_every_shard_and_commits_a_start() -> None:
    async def main(database: SimDatabase) -> None:
        engine = SimEngine(database, "e1")
        await until(lambda: owners(database) == {engine.incarnation})
        started = await ask([engine], start_of(1))
        (row,) = database.tables.execution.values()
        assert (row.run_id, row.workflow_id) == (started.run_id, "order-1")
        assert [event.type for event in database.tables.events] == ["workflow_execution_started"]
        assert len(database.tables.outbox) == 1
        again = await ask([engine], start_of(1))
        assert again.run_id == started.run_id
        assert again.replayed
        check_tables(database, 1)
        engine.stop.set()
        await engine.task

    simulate(main)


def test_the_shards_of_a_killed_engine_go_to_the_others() -> None:
    async def main(database: SimDatabase) -> None:
        engines = [SimEngine(database, f"e{number}") for number in range(3)]
        await until(lambda: None not in owners(database) and len(owners(database)) == 3, 120.0)
        runs = {number: (await ask(engines, start_of(number))).run_id for number in range(20)}
        killed = engines[0]
        at = database.loop.now
        killed.process.kill()
        left = {engine.incarnation for engine in engines[1:]}
        await until(lambda: owners(database) <= left)
        assert 7.0 < database.loop.now - at < 16.0
        for number in range(20):
            assert (await ask(engines, start_of(number))).run_id == runs[number]
        await ask(engines, start_of(20))
        check_tables(database, 21)

    simulate(main)


def test_a_frozen_engine_writes_nothing_once_its_shards_are_taken() -> None:
    async def main(database: SimDatabase) -> None:
        engines = [SimEngine(database, "e0"), SimEngine(database, "e1")]
        await until(lambda: None not in owners(database) and len(owners(database)) == 2, 120.0)
        frozen = engines[0]
        frozen.process.freeze()
        await until(lambda: owners(database) == {engines[1].incarnation})
        await ask(engines, start_of(1))
        frozen.process.thaw()
        assert frozen.node is not None
        node = frozen.node
        await until(node.membership.expired.is_set)
        check_tables(database, 1)

    simulate(main)


@pytest.mark.parametrize("fault", [one for one in Fault if one is not Fault.SLOW])
def test_no_fault_of_a_commit_loses_or_doubles_a_start(fault: Fault) -> None:
    def plan(call: Call) -> Fault | None:
        wanted = call.name == "commit_group" and call.arguments[4]
        return fault if wanted and call.backend.database.dice.random() < 0.4 else None

    async def main(database: SimDatabase) -> None:
        engine = SimEngine(database, "e1")
        await until(lambda: owners(database) == {engine.incarnation})
        database.plan = plan
        for number in range(10):
            await ask([engine], start_of(number))
        database.plan = None
        await ask([engine], start_of(10))
        assert database.counts[fault.value] > 0
        await asyncio.sleep(30.0)
        check_tables(database, 11)
        happenings = {happening for _, _, happening in database.tables.shard_term}
        assert "bumped" in happenings, "a doubtful write must end its range before anything is read"

    simulate(main)


def turmoil(seed: int) -> int:
    """Run three engines through odds, an absence and a kill; return the trace's hash."""

    async def main(database: SimDatabase) -> None:
        engines = [SimEngine(database, f"e{number}") for number in range(3)]
        await until(lambda: None not in owners(database))
        database.odds = Odds(*[0.02] * 9)
        for number in range(10):
            await ask(engines, start_of(number))
        database.go_away()
        await asyncio.sleep(3.0)
        database.come_back()
        engines[1].process.kill()
        for number in range(10, 20):
            await ask(engines, start_of(number))
        database.odds = Odds()
        await asyncio.sleep(30.0)
        check_tables(database, 20)

    return simulate(main, seed).trace_hash


def test_turmoil_has_one_trace_in_every_process() -> None:
    script = "from tests.simulation.test_store_engine import turmoil; print(turmoil(7))"
    # This process has drawn a hash seed of its own.
    there = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    assert int(there) == turmoil(7)
