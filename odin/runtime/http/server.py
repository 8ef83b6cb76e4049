"""uvicorn as one loop among others: it takes no signals, and ends when the service does."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from odin.errors import ConfigurationError
from odin.runtime.http.protocol import BoundedProtocol, ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp

GRACEFUL_SECONDS = 2
WEBSOCKET_BYTES_MAX = 4 * 1024 * 1024
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 1_024


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to `serve` and says when it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # uvicorn decorates a generator
        """Leave signals alone: uvicorn would replace the handlers of `serve`."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then tell."""
        await super().startup(sockets)
        self._on_started()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to `host`:`port`; port 0 takes a free one.

    Raises:
        ConfigurationError: the name is unknown, the port is taken, or it may not be used.
    """
    listener: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
    except OSError as error:
        if listener is not None:
            listener.close()
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another "
            "ODIN_HTTP_HOST or ODIN_HTTP_PORT (0 takes a free port)"
        ) from error
    return listener


async def serve_http(  # noqa: PLR0913 - one place where a server is composed
    app: ASGIApp,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    sockets: Sequence[socket.socket] | None = None,
    on_bound: Callable[[int], None] | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve `app` until `stop` is set and the requests in hand are answered (2 s at most).

    Streams and WebSockets must watch the stop event themselves; what is left after 2 s is cut.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        stop: The service's stop event.
        sockets: Sockets bound already, in place of `host` and `port`; closed at the end.
        on_bound: Called with the port once connections are accepted.
        limits: What connections may cost.

    Raises:
        ConfigurationError: the address cannot be listened on.
        RuntimeError: the server ended although nothing had told it to.
    """
    listeners = list(sockets) if sockets is not None else [bind(host, port)]
    bound_port = int(listeners[0].getsockname()[1])
    config = uvicorn.Config(
        app,
        host=host,
        port=bound_port,
        access_log=False,
        backlog=_BACKLOG,
        date_header=False,
        http=partial(BoundedProtocol, limits=(limits or ConnectionLimits()).within_files()),  # type: ignore[arg-type]  # uvicorn calls what it is given
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ws_max_size=WEBSOCKET_BYTES_MAX,
        ws_per_message_deflate=False,
        ws_ping_interval=5.0,
        ws_ping_timeout=10.0,
    )
    server = _Server(config, lambda: on_bound(bound_port) if on_bound else None)
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(listeners), name="uvicorn")
            stopping = group.create_task(stop.wait(), name="http until stop")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            server.should_exit = True
    finally:
        for accepting in getattr(server, "servers", ()):
            accepting.close()  # a cancelled uvicorn leaves its sockets with the event loop
        for listener in listeners:
            listener.close()
    if not stop.is_set():
        raise RuntimeError("the HTTP server ended on its own")
