"""An engine's life: one incarnation after another, each with its own lease, store, terms and links.

bind ──▶ open store ──▶ register ──▶ serve ──(told to stop)──▶ drain, hand over, row dead ──▶ end
             ▲                          │
             └── new incarnation ◀──(the lease is over: everything of the old one is dropped)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute

from odin.core.admission import Limits
from odin.errors import ConfigurationError, OdinError
from odin.runtime.clock import Clock, SystemClock, pause
from odin.runtime.http import bind, serve_http
from odin.runtime.ids import Ids, SystemIds
from odin.runtime.link_keeper import LinkKeeper
from odin.runtime.link_sockets import (
    PEER_PATH,
    WORKER_PATH,
    ServerSocket,
    connect_socket,
    new_session,
)
from odin.runtime.links import BETWEEN_ENGINES, WORKER_TO_ENGINE, Link, Socket
from odin.runtime.migrate import check
from odin.runtime.settings import Broker
from odin.runtime.telemetry import Telemetry
from odin.runtime.valkey import ValkeyClient, ValkeyDownError, take_token

from .admission import Admission
from .api import create_app
from .backend import EngineBackend
from .membership import Membership
from .metrics import samples
from .node import Node
from .relaying import Relay, relay_module
from .settings import EngineSettings
from .store.connections import PoolSizes
from .store.store import Store

if TYPE_CHECKING:
    import socket

    from aiohttp import ClientSession
    from fastapi import FastAPI
    from starlette.websockets import WebSocket

    from odin.runtime.service import Loop

log = logging.getLogger(__name__)

OPEN_PAUSE_SECONDS = 0.5


class Engine:
    """Runs incarnations until told to stop."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        store_type: type[Store] = Store,
    ) -> None:
        self._settings = settings
        self._store_type = store_type
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._port = settings.http_port
        self.on_bound: Callable[[int], None] = lambda _port: None

    async def run(self, stop: asyncio.Event) -> None:
        """Live one incarnation after another until told to stop.

        Raises:
            OdinError: A setting contradicts the cluster's, or the node id is in use.
        """
        await check(self._settings.dsn)
        failures = 0
        while not stop.is_set():
            listener = bind(self._settings.http_host, self._port)
            self._port = int(listener.getsockname()[1])
            try:
                await self._live(listener, stop)
                failures = 0
            except (ConfigurationError, ExceptionGroup):
                raise
            except (OSError, OdinError) as error:
                if getattr(error, "retryable", True) is False:
                    raise
                level = logging.DEBUG if failures else logging.WARNING
                log.log(level, "could not begin, trying again", extra={"detail": str(error)})
                failures += 1
                await pause(self._clock, stop, OPEN_PAUSE_SECONDS)
            finally:
                listener.close()

    async def _live(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Live one incarnation: return when it is told to stop, or when its lease is over."""
        settings = self._settings
        incarnation = self._ids.incarnation()
        sizes = PoolSizes(lanes=settings.lanes)
        async with self._store_type(
            settings.dsn, incarnation, sizes=sizes, clock=self._clock
        ) as store:
            cluster = await store.open_cluster(settings.shard_count, settings.mode)
            membership = Membership(
                store,
                self._clock,
                incarnation=incarnation,
                node_id=settings.node_id,
                address=settings.advertised(self._port),
            )
            await membership.register()
            node = Node(
                store,
                self._clock,
                self._ids,
                membership=membership,
                shard_count=cluster.shard_count,
                make_row=relay_module("transport").OutboxRow,
                keep_us=int(settings.retention.total_seconds() * 1_000_000),
            )
            async with new_session() as session:
                await self._serve(node, listener, session, stop)

    async def _serve(
        self,
        node: Node,
        listener: socket.socket,
        session: ClientSession,
        stop: asyncio.Event,
    ) -> None:
        settings = self._settings
        relay = Relay(node, self._clock, settings.url if settings.broker is Broker.RABBITMQ else "")
        telemetry = Telemetry(settings.valkey, "engine", settings.node_id, clock=self._clock)
        node.admission = self._admission(node, relay)
        dice = Random(self._ids.batch_random())  # noqa: S311 - jitter is no secret
        keeper = LinkKeeper(
            self._dialler(session),
            BETWEEN_ENGINES,
            node.peers,
            clock=self._clock,
            rng=dice,
            impatient=True,
        )
        node.ownership.on_nodes.append(lambda: keeper.want(_others(node)))
        backend = EngineBackend(
            node, node.admission, mode=settings.mode, broker=settings.broker.value
        )
        app = create_app(backend, token=settings.token, mount=_links_of(node))
        ended = asyncio.Event()

        async def http(until: asyncio.Event) -> None:
            await serve_http(
                app, settings.http_host, self._port, until, sockets=[listener], on_bound=self._bound
            )

        loops: dict[str, Loop] = {
            **node.loops(),
            **relay.loops(),
            "links": keeper.run,
            "telemetry": telemetry.run,
            "gauges": lambda until: self._gauges(node, telemetry, until),
        }
        async with asyncio.TaskGroup() as group:
            for name, loop in {**loops, "http": http}.items():
                group.create_task(loop(ended), name=name)
            try:
                await self._until_over(node, stop)
                await self._leave(node, told=stop.is_set())
            finally:
                ended.set()
                node.router.close()
                node.hub.close()
                node.peers.close()

    async def _until_over(self, node: Node, stop: asyncio.Event) -> None:
        """Return when told to stop, or when the lease is over."""
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(stop.wait(), name="until stop")
            expiring = group.create_task(node.membership.expired.wait(), name="until expired")
            await asyncio.wait({stopping, expiring}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            expiring.cancel()

    async def _leave(self, node: Node, *, told: bool) -> None:
        if told and not node.membership.expired.is_set():
            await node.ownership.drain()
            return
        node.shards.leave("the lease of its owner is over")

    def _bound(self, port: int) -> None:
        log.info("listening", extra={"address": self._settings.advertised(port)})
        self.on_bound(port)

    def _dialler(self, session: ClientSession) -> Callable[[str], Awaitable[Socket]]:
        """Return how links to other engines are opened."""
        token, routes = self._settings.token, self._settings.routes

        def headers() -> dict[str, str]:
            return {"Authorization": f"Bearer {token}"} if token else {}

        async def connect(address: str) -> Socket:
            dialled = routes.get(address, address)
            return await connect_socket(session, dialled, PEER_PATH, headers)

        return connect

    def _admission(self, node: Node, relay: Relay) -> Admission:
        client = ValkeyClient(self._settings.valkey) if self._settings.valkey else None

        async def take(origin: str, per_second: float, burst: float, tokens: int) -> int | None:
            assert client is not None  # noqa: S101 - used only where there is a client
            try:
                answer = await take_token(
                    client,
                    origin,
                    capacity=int(burst),
                    refill_per_second=per_second,
                    cost=tokens,
                )
            except ValkeyDownError as error:
                raise OSError(str(error)) from error
            return None if answer.allowed else answer.retry_after_ms

        return Admission(
            self._clock,
            Limits(),
            depth=lambda: relay.depth,
            oldest_ms=lambda: relay.oldest_age_ms,
            nodes=lambda: len(node.ownership.entries()),
            take_tokens=None if client is None else take,
        )

    async def _gauges(self, node: Node, telemetry: Telemetry, stop: asyncio.Event) -> None:
        while not await pause(self._clock, stop, 1.0):
            if telemetry.has_listener:
                for name, _, value, _ in samples(node):
                    telemetry.gauge(name, value)


def _others(node: Node) -> list[str]:
    me = node.membership.incarnation
    return [entry.address for entry in node.ownership.entries() if entry.incarnation != me]


def _links_of(node: Node) -> Callable[[FastAPI], None]:
    """Return how the links' WebSockets are added to the app."""

    async def worker_link(websocket: WebSocket) -> None:
        await websocket.accept()
        link = Link(ServerSocket(websocket), WORKER_TO_ENGINE, name=_peer_of(websocket))
        await node.hub.serve(link)

    async def engine_link(websocket: WebSocket) -> None:
        await websocket.accept()
        link = Link(ServerSocket(websocket), BETWEEN_ENGINES, name=_peer_of(websocket))
        await node.peers.serve(link)

    def mount(app: FastAPI) -> None:
        app.router.routes.append(WebSocketRoute(WORKER_PATH, worker_link))
        app.router.routes.append(WebSocketRoute(PEER_PATH, engine_link))

    return mount


def _peer_of(websocket: WebSocket) -> str:
    client = websocket.client
    return "unknown" if client is None else f"{client.host}:{client.port}"
