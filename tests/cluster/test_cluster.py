"""Three engines and two workers as processes on real servers, and what their ends cost: nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from cluster.verdicts import Summary
from cluster.verify import verify
from odin.client import Client
from odin.core.sharding import shard_of
from odin.runtime.telemetry import read_telemetry

from .support import Running, ask, json_of, read_of_process, started, until

pytestmark = pytest.mark.timeout(150)
TAKEOVER_SECONDS = 12.0
OWNED = """
SELECT shard.shard_id
FROM shard JOIN node ON node.incarnation = shard.owner
WHERE node.incarnation = $1
"""
LIVING = "SELECT incarnation FROM node WHERE node_id = $1 AND state <> 'dead'"


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("cluster") / "odin"
    async with started(folder, "up", "--engines", "3", "--workers", "2", "--load", "5") as running:
        yield running


@pytest.fixture
async def books(cluster: Running) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(cluster.secrets.postgres_dsn, timeout=10)
    try:
        yield connection
    finally:
        await connection.close()


async def verified(cluster: Running, wait_seconds: float = 60) -> Summary:
    """Judge every order that has been accepted by now."""
    ids = cluster.accepted_orders()
    return await verify(
        cluster.secrets.postgres_dsn,
        cluster.place.client_log,
        ids=ids,
        wait_seconds=wait_seconds,
    )


async def more_orders(cluster: Running, count: int, seconds: float = 30) -> None:
    before = len(cluster.accepted_orders())
    await until(
        lambda: len(cluster.accepted_orders()) >= before + count, seconds, "orders are accepted"
    )


async def test_orders_flow_finish_in_order_and_are_charged_once(cluster: Running) -> None:
    await more_orders(cluster, 20)
    summary = await verified(cluster)
    assert summary.problems == {}
    assert summary.counts["completed"] >= 15


async def test_the_shards_of_a_killed_engine_serve_again_and_no_order_is_lost(
    cluster: Running, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    await more_orders(cluster, 5)
    incarnation = await books.fetchval(LIVING, "engine-2")
    await _owns_some(books, incarnation)
    orphaned = {row["shard_id"] for row in await books.fetch(OWNED, incarnation)}
    shard_count = await books.fetchval("SELECT shard_count FROM cluster")
    loop = asyncio.get_running_loop()
    await cluster.kill_part("engine-2")
    killed_at = loop.time()
    others = [one for one in cluster.state.engines if one != cluster.part("engine-2").address]
    async with Client(others) as client, asyncio.TaskGroup() as group:
        for shard_id in orphaned:
            workflow_id = _id_on(shard_id, shard_count)
            group.create_task(_serves(client, workflow_id, killed_at + TAKEOVER_SECONDS))
    assert loop.time() - killed_at < TAKEOVER_SECONDS + 1
    await more_orders(cluster, 10)
    summary = await verified(cluster)
    assert summary.problems == {}


async def test_the_killed_engine_comes_back_and_gets_shards_again(
    cluster: Running, books: asyncpg.Connection[asyncpg.Record]
) -> None:
    _, restarts = await cluster.kill_part("engine-3")
    await until(lambda: cluster.part("engine-3").restarts == restarts + 1, 10)
    await until(lambda: cluster.part("engine-3").phase == "running", 40, "engine-3 is ready")
    async with asyncio.timeout(60):
        while (incarnation := await books.fetchval(LIVING, "engine-3")) is None:
            await asyncio.sleep(0.1)
        await _owns_some(books, incarnation)


async def test_a_killed_worker_costs_no_order_and_is_started_again(cluster: Running) -> None:
    await more_orders(cluster, 5)
    pid, restarts = await cluster.kill_part("worker-1")
    await until(lambda: cluster.part("worker-1").restarts == restarts + 1, 5)
    await until(lambda: cluster.part("worker-1").phase == "running", 10)
    assert cluster.part("worker-1").pid != pid
    await more_orders(cluster, 10)
    summary = await verified(cluster)
    assert summary.problems == {}


async def test_a_valkey_that_is_killed_comes_back_on_its_port(cluster: Running) -> None:
    before = cluster.part("valkey")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: cluster.part("valkey").pid not in (None, before.pid), 15)
    assert cluster.part("valkey").address == before.address
    async with asyncio.timeout(20):
        while not await read_telemetry(cluster.secrets.valkey_url):
            await asyncio.sleep(0.2)


async def test_ps_shows_every_part_and_its_numbers(cluster: Running) -> None:
    async with asyncio.timeout(30):
        while True:  # telemetry may be a moment late: Valkey is killed in another test
            code, text = await ask("ps", "--json", folder=cluster.place.folder)
            shown = json_of(text)
            parts = {one["part"]: one for one in shown["parts"]}  # type: ignore[attr-defined] # decoded JSON
            if parts["engine-1"]["numbers"]:
                break
    assert (code, shown["phase"], shown["broker"]) == (0, "running", "rabbitmq")
    assert list(parts)[:3] == ["postgres", "rabbitmq", "valkey"]
    assert parts["engine-1"]["numbers"]["shards"] >= 0
    assert parts["worker-2"]["pid"] == cluster.part("worker-2").pid
    code, text = await ask("ps", folder=cluster.place.folder)
    assert code == 0
    assert "engine-1" in text


async def test_no_password_is_in_a_log_the_state_or_on_a_command_line(cluster: Running) -> None:
    urls = (cluster.secrets.postgres_dsn, cluster.secrets.amqp_url, cluster.secrets.valkey_url)
    passwords = [one.rpartition("@")[0].rpartition(":")[2] for one in urls]
    assert all(len(one) > 20 for one in passwords)
    files = [cluster.place.state, *cluster.place.logs.glob("*")]
    lines = [Path(f"/proc/{pid}/cmdline") for pid, _ in cluster.processes()]
    said = {path: path.read_bytes().decode(errors="replace") for path in files}
    said |= {path: read_of_process(path) for path in lines}
    assert sum("engine" in said[path] for path in lines) >= 2
    for path, text in said.items():
        assert not any(one in text for one in passwords), path


async def _owns_some(books: asyncpg.Connection[asyncpg.Record], incarnation: str) -> None:
    async with asyncio.timeout(60):
        while not await books.fetch(OWNED, incarnation):
            await asyncio.sleep(0.1)


def _id_on(shard_id: int, shard_count: int) -> str:
    return next(
        name
        for n in range(100_000)
        if shard_of("default", name := f"probe-{n}", shard_count) == shard_id
    )


async def _serves(client: Client, workflow_id: str, until_at: float) -> None:
    """Start and end a run there; asked again until `until_at`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout_at(until_at):
        handle = await client.start_workflow(
            "bench_steps", args=[0, "x"], id=workflow_id, task_queue="nobody"
        )
    assert loop.time() < until_at
    await handle.terminate(reason="only a probe")
