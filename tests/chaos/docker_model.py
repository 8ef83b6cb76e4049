"""A model of the Docker engine's API on a unix socket: what its documentation says, in memory.

It is no Docker: whether the faults bite on real containers is shown by `make compose-chaos`. What
it shows is that the client asks for what is documented, and understands what is answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

VERSION = "1.47"
PROJECT = "shop"
NETWORK = "shop_odin"
TOKEN = "t0ken"  # noqa: S105 - opens a model


@dataclass
class Box:
    """A container of the model; an engine of odin answers at a port of the loopback."""

    service: str
    status: str = "running"
    starts: int = 1
    exit_code: int = 0
    networks: dict[str, list[str]] = field(default_factory=dict)
    port: int = 0
    number: str = "1"
    project: str = PROJECT

    @property
    def id(self) -> str:
        return f"{self.service}{self.number}".encode().hex().ljust(64, "0")

    @property
    def answers(self) -> bool:
        return self.status == "running" and bool(self.networks)

    async def listen(self) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                await reader.read(1)
                if self.answers:
                    writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
                elif self.status in ("running", "paused"):
                    await reader.read()  # nothing comes back, until the other side gives up
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def described(self) -> dict[str, Any]:
        bound = [{"HostIp": "127.0.0.1", "HostPort": str(self.port)}] if self.port else []
        ports = {"7300/tcp": bound}
        return {
            "Id": self.id,
            "State": {
                "Status": self.status,
                "StartedAt": f"2026-01-01T00:00:{self.starts:02}Z",
                "ExitCode": self.exit_code,
            },
            "Config": {"Env": self._env(), "Labels": self.labels()},
            "HostConfig": {"PortBindings": ports},
            "NetworkSettings": {
                "Ports": ports if self.status == "running" else {},
                "Networks": {
                    name: {"Aliases": [*aliases, self.id[:12]], "IPAddress": "127.0.0.9"}
                    for name, aliases in self.networks.items()
                },
            },
            "RestartCount": 0,
        }

    def labels(self) -> dict[str, str]:
        return {
            "com.docker.compose.project": self.project,
            "com.docker.compose.service": self.service,
            "com.docker.compose.container-number": self.number,
        }

    def _env(self) -> list[str]:
        return [
            "ODIN_POSTGRES_DSN=postgresql://odin:hunter2@postgres:5432/odin",
            "ODIN_AMQP_URL=amqp://odin:hunter2@rabbitmq:5672/",
            "ODIN_VALKEY_URL=valkey://:hunter2@valkey:6379/0",
            f"ODIN_API_TOKEN={TOKEN}",
            "ODIN_MOCK_ADMIN_TOKEN=mock-token",
        ]


@dataclass
class Engine:
    """The engine: its containers, and every call that changed something."""

    boxes: dict[str, Box] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    is_deaf: bool = False

    def add(self, service: str, **fields: Any) -> Box:  # noqa: ANN401 - the fields of a box
        box = Box(service, networks={NETWORK: [service]}, **fields)
        self.boxes[box.id] = box
        return box

    def of(self, service: str) -> Box:
        return next(one for one in self.boxes.values() if one.service == service)

    async def list(self, request: web.Request) -> web.Response:
        [wanted] = json.loads(request.query["filters"])["label"]
        name, _, value = wanted.partition("=")
        is_all = request.query.get("all") in ("1", "true")
        found = [
            {"Id": one.id, "Labels": one.labels()}
            for one in self.boxes.values()
            if one.labels().get(name, "") == (value or one.labels().get(name))
            and (is_all or one.status == "running")
        ]
        return web.json_response(found)

    async def inspect(self, request: web.Request) -> web.Response:
        box = self.boxes.get(request.match_info["id"])
        return _missing() if box is None else web.json_response(box.described())

    async def act(self, request: web.Request) -> web.Response:
        box, action = self.boxes.get(request.match_info["id"]), request.match_info["action"]
        if box is None:
            return _missing()
        if self.is_deaf:
            return web.Response(status=204)
        self.calls.append(f"{action} {box.service}")
        if action == "start" and box.status == "running":
            return web.Response(status=304)
        wanted = {"kill": "running", "pause": "running", "unpause": "paused"}.get(action)
        if wanted is not None and box.status != wanted:
            return _refused(409, f"container is not {wanted}")
        if action == "kill":
            assert request.query["signal"] == "SIGKILL"
            box.status, box.exit_code = "exited", 137
        elif action == "pause":
            box.status = "paused"
        else:
            box.starts += action in ("start", "restart")
            box.status = "running"
        return web.Response(status=204)

    async def network(self, request: web.Request) -> web.Response:
        body, action = await request.json(), request.match_info["action"]
        box = self.boxes[body["Container"]]
        if request.match_info["id"] != NETWORK:
            return _missing()
        self.calls.append(f"{action} {box.service}")
        if action == "disconnect":
            del box.networks[NETWORK]
        else:
            box.networks[NETWORK] = body["EndpointConfig"]["Aliases"]
        return web.Response(status=200)


async def _ping(_: web.Request) -> web.Response:
    return web.Response(text="OK", headers={"Api-Version": VERSION})


def _missing() -> web.Response:
    return _refused(404, "No such container")


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


@asynccontextmanager
async def modelled(path: Path) -> AsyncIterator[Engine]:
    """A model with a small project, listening at a socket."""
    engine = Engine()
    servers = [await engine.add(service).listen() for service in ("engine-1", "engine-2")]
    for service in ("worker-1", "postgres", "rabbitmq", "valkey", "payments"):
        engine.add(service)
    engine.add("migrate", status="exited")
    app = web.Application()
    base = f"/v{VERSION}"
    app.router.add_get("/_ping", _ping)
    app.router.add_get(f"{base}/containers/json", engine.list)
    app.router.add_get(f"{base}/containers/{{id}}/json", engine.inspect)
    app.router.add_post(f"{base}/containers/{{id}}/{{action}}", engine.act)
    app.router.add_post(f"{base}/networks/{{id}}/{{action}}", engine.network)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield engine
    finally:
        await runner.cleanup()
        for server in servers:
            server.close()
            await server.wait_closed()
