"""A test bed: engines and workers inside the test's process, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from pydantic import SecretStr

from engine.lifetime import Engine
from engine.settings import EngineSettings
from engine.store import Store
from odin.client import Client
from odin.runtime.settings import Broker
from odin.worker import Worker

READY_SECONDS = 15.0


@dataclass
class RunningEngine:
    """An engine that serves, and how to end it."""

    engine: Engine
    address: str
    node_id: str
    stop: asyncio.Event
    task: asyncio.Task[None]


@dataclass
class Bed:
    """Engines, workers and a client on one database."""

    dsn: str
    amqp_url: str
    broker: str
    group: asyncio.TaskGroup
    shard_count: int
    store_type: type[Store] = Store
    engines: list[RunningEngine] = field(default_factory=list)
    workers: list[tuple[Worker, asyncio.Event, asyncio.Task[None]]] = field(default_factory=list)
    client: Client = field(init=False)

    @property
    def addresses(self) -> list[str]:
        """Where the running engines listen."""
        return [one.address for one in self.engines]

    async def start_engine(self, node_id: str) -> RunningEngine:
        """Start an engine and return once it listens."""
        settings = EngineSettings(
            postgres_dsn=SecretStr(self.dsn),
            broker=Broker(self.broker),
            amqp_url=SecretStr(self.amqp_url) if self.amqp_url else None,
            node_id=node_id,
            http_port=0,
            shard_count=self.shard_count,
        )
        engine = Engine(settings, store_type=self.store_type)
        bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        engine.on_bound = lambda port: None if bound.done() else bound.set_result(port)
        stop = asyncio.Event()
        task = self.group.create_task(_run_engine(engine, stop), name=node_id)
        async with asyncio.timeout(READY_SECONDS):
            port = await bound
        running = RunningEngine(engine, f"http://127.0.0.1:{port}", node_id, stop, task)
        self.engines.append(running)
        return running

    async def start_worker(
        self,
        workflows: Sequence[object],
        activities: Sequence[Callable[..., Any]] = (),
        **options: Any,  # noqa: ANN401 - a worker's own options, passed on
    ) -> Worker:
        """Start a worker linked to every engine."""
        worker = Worker(
            self.addresses,
            workflows=workflows,
            activities=activities,
            broker=self.broker,
            amqp_url=self.amqp_url or None,
            **options,
        )
        stop = asyncio.Event()
        task = self.group.create_task(worker.run(stop), name="worker")
        self.workers.append((worker, stop, task))
        return worker

    async def all_owned(self) -> None:
        """Return once every shard has an owner that lives."""
        await self.until(
            "SELECT count(*) = $1 FROM shard JOIN node ON node.incarnation = shard.owner"
            " WHERE node.state = 'alive'",
            self.shard_count,
        )

    async def until(self, question: str, *arguments: object, seconds: float = 20.0) -> None:
        """Return once the database answers `question` with true."""
        connection = await asyncpg.connect(self.dsn)
        try:
            async with asyncio.timeout(seconds):
                while not await connection.fetchval(question, *arguments):
                    await asyncio.sleep(0.02)
        finally:
            await connection.close()

    async def fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """Return rows."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close()

    async def execute(self, statement: str, *arguments: object) -> None:
        """Change something behind the engines' backs."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    async def lose_all_terms(self) -> None:
        """Take every shard away, and return once each has a new term: memory is gone."""
        before = (await self.fetch("SELECT sum(range_id) AS ranges FROM shard"))[0]["ranges"]
        await self.execute("UPDATE shard SET range_id = range_id + 1")
        await self.until("SELECT sum(range_id) >= $1 FROM shard", before + 2 * self.shard_count)

    async def history(self, workflow_id: str) -> list[str]:
        """Return the event types of all runs of a workflow id, in order."""
        rows = await self.fetch(
            "SELECT type FROM event JOIN execution USING (shard_id, run_id)"
            " WHERE workflow_id = $1 ORDER BY execution.started_at, execution.run_id, event_id",
            workflow_id,
        )
        return [row[0] for row in rows]

    async def kill(self, running: RunningEngine) -> None:
        """End an engine as a kill would: nothing is released, its row stays alive."""
        running.task.cancel()
        await asyncio.wait({running.task})
        self.engines.remove(running)


async def _run_engine(engine: Engine, stop: asyncio.Event) -> None:
    """Run an engine; a cancelled one is gone like a killed process."""
    with contextlib.suppress(asyncio.CancelledError):
        await engine.run(stop)


@contextlib.asynccontextmanager
async def running_bed(
    dsn: str,
    *,
    amqp_url: str = "",
    engines: int = 1,
    shard_count: int = 8,
    store_type: type[Store] = Store,
) -> AsyncIterator[Bed]:
    """Run engines until the block is left; everything is stopped in order."""
    broker = "rabbitmq" if amqp_url else "embedded"
    async with asyncio.TaskGroup() as group:
        bed = Bed(dsn, amqp_url, broker, group, shard_count, store_type)
        try:
            for number in range(1, engines + 1):
                await bed.start_engine(f"engine-{number}")
            await bed.all_owned()
            bed.client = await Client.connect(*bed.addresses)
            async with bed.client:
                yield bed
        finally:
            for _, stop, _ in bed.workers:
                stop.set()
            for _, _, task in bed.workers:
                await asyncio.wait({task}, timeout=10)
            for running in bed.engines:
                running.stop.set()
