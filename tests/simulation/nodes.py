"""Engines and workers as they are, started as simulated processes, and what can befall them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.lifetime import Engine
from engine.membership import NodeIdTakenError
from engine.settings import EngineSettings
from odin.runtime.settings import Broker
from odin.worker import Worker
from tests.simulation.process import HostProcess

if TYPE_CHECKING:
    from tests.simulation.world import World

RESTART_SECONDS = 1.0
AMQP_URL = "amqp://odin:odin@broker:5672/"


class Node(ABC):
    """A machine with one program that is started again and again.

    Attributes:
        process: The present start; a dead one between a crash and the next start.
        stop: Set to end the program in order.
    """

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.starts = 0
        self.process: HostProcess | None = None
        self.stop: asyncio.Event | None = None
        self.ended_well = False
        self.task: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its program runs (or is frozen)."""
        return self.process is not None and self.process.is_alive and not self.ended_well

    def start(self) -> None:
        """Begin, as a new process."""
        assert not self.is_alive
        self.starts += 1
        self.ended_well = False
        process = self.process = self.world.new_process(self.host, self.starts)
        self.world.network.forget_host(self.host)
        self.world.note("start", process.name)

        async def live() -> None:
            stop = self.stop = asyncio.Event()
            try:
                await self.program()(stop)
            except NodeIdTakenError:
                self.world.note("refused to start", process.name)
                self.world.loop.call_later(
                    RESTART_SECONDS, self._restart, process, context=Context()
                )
            except Exception as error:  # noqa: BLE001 - a program that ends by an error has failed
                self.world.complain(f"{process.name} ended: {type(error).__name__}: {error}")
                if isinstance(error, ExceptionGroup):
                    self.world.complain(repr(error.exceptions))
            if self.process is process:
                self.ended_well = True
            self.world.network.lose_process(process, silently=False)
            self.world.note("end", process.name)

        self.task = process.create_task(live(), name=f"{self.host} program")

    def _restart(self, process: HostProcess) -> None:
        """Start again what has given up, as whatever looks after it would."""
        if self.process is process and not self.is_alive:
            self.start()

    def crash(self, *, silently: bool = False) -> None:
        """End at once, without a word if the whole machine is gone."""
        process = self.process
        assert process is not None
        self.world.note("crash", process.name, silently)
        process.kill()
        self.world.network.lose_process(process, silently=silently)

    def ask_to_stop(self) -> None:
        """Tell the program to end in order."""
        process = self.process
        assert process is not None
        self.world.note("stop", process.name)

        def tell() -> None:
            if self.stop is not None:
                self.stop.set()

        process.call_soon(tell)

    @abstractmethod
    def program(self) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
        """Return what runs; called in the process."""


class EngineNode(Node):
    """An engine."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"e{number}")
        self.port = 7300 + number
        self.address = f"http://127.0.0.1:{self.port}"
        world.network.hosts[self.address] = self.host

    def program(self) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
        world, process = self.world, self.process
        assert process is not None
        shape = world.shape
        settings = _settings(self.host, self.port, shape.shard_count, shape.lanes)
        store_type = world.database.store_type(self.host)
        return Engine(settings, clock=process.clock, ids=process.ids, store_type=store_type).run


@cache
def _settings(host: str, port: int, shard_count: int, lanes: int) -> EngineSettings:
    """Return an engine's settings; they are frozen, and reading them takes milliseconds."""
    return EngineSettings(
        postgres_dsn="postgresql://sim/sim",
        amqp_url=AMQP_URL,
        broker=Broker.RABBITMQ,
        valkey_url=None,
        http_host="127.0.0.1",
        http_port=port,
        node_id=host,
        shard_count=shard_count,
        lanes=lanes,
        retention=timedelta(hours=6),
    )


class WorkerNode(Node):
    """A worker."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"w{number}")

    def program(self) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
        world, process = self.world, self.process
        assert process is not None
        return Worker(
            [engine.address for engine in world.engines],
            workflows=world.workload.workflows,
            activities=world.workload.activities(process),
            clock=process.clock,
            ids=process.ids,
            amqp_url=AMQP_URL,
            identity=process.name,
            build_id="sim",
            max_concurrent_activities=world.shape.activity_slots,
            max_cached_workflows=world.shape.cached_workflows,
        ).run
