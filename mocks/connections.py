"""Serves an app with uvicorn, and knows the connection behind a request, to cut it when told to."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from odin.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

DRAIN_SECONDS = 2
BACKLOG = 512


class Connections:
    """The open connections of one server, by the address of the other end."""

    def __init__(self) -> None:
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}

    async def cut(self, request: Request) -> None:
        """Close the connection of `request` at once; returns when the server has noticed."""
        if request.client is None:
            return
        transport = self._transports.get((request.client.host, request.client.port))
        if transport is None:
            return
        transport.abort()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    def protocol(self) -> type[asyncio.Protocol]:
        """Return uvicorn's HTTP protocol, keeping this book of connections."""
        transports = self._transports

        class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen at run time
            def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as uvicorn has it
                super().connection_made(transport)
                if self.client:
                    transports[self.client] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                transports.pop(self.client, None)
                super().connection_lost(exc)

        return Protocol


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a context manager as well
        """Leave signals to the service's own loop."""
        return nullcontext()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 lets the system choose one.

    Raises:
        ConfigurationError: the port is taken or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error}; choose another ODIN_MOCK_PORT"
        ) from error
    listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
    return listener


async def serve_app(
    app: FastAPI, listener: socket.socket, connections: Connections, stop: asyncio.Event
) -> None:
    """Serve `app` on `listener` until `stop` is set and the requests in hand are answered."""
    config = uvicorn.Config(
        app,
        http=connections.protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = _Server(config)
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[listener]), name="uvicorn")
            stopping = group.create_task(stop.wait(), name="mock until stop")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            server.should_exit = True
    finally:
        # A cancelled uvicorn leaves its sockets with the event loop, which then trips over the next
        # socket that gets the same number.
        for listening in getattr(server, "servers", ()):
            listening.close()
