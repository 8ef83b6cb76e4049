"""The two ends of a link's WebSocket: aiohttp's client, and an ASGI application's server side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiohttp

from odin.core.wire import FRAME_BYTES_MAX
from odin.runtime.links import LinkClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from odin.runtime.links import Socket

WORKER_PATH: Final = "/v1/links/worker"
PEER_PATH: Final = "/v1/links/peer"
CONNECT_SECONDS: Final = 3.0
OPEN_SECONDS: Final = 4.0
"""Of the whole opening, the answer to the handshake included."""


class ClientSocket:
    """An aiohttp WebSocket as a link wants it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary message."""
        await self._socket.send_bytes(data)

    async def receive_bytes(self) -> bytes | None:
        """Return the next binary message, or None once the connection is closed."""
        message = await self._socket.receive()
        return message.data if message.type is aiohttp.WSMsgType.BINARY else None

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        await self._socket.close(code=code, message=reason.encode())


class AsgiWebSocket(Protocol):
    """What a link needs of a Starlette or FastAPI WebSocket."""

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next ASGI event."""
        ...

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI event."""
        ...


class ServerSocket:
    """A Starlette WebSocket, already accepted, as a link wants it."""

    def __init__(self, websocket: AsgiWebSocket) -> None:
        self._websocket = websocket
        self._open = True

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary message."""
        try:
            await self._websocket.send({"type": "websocket.send", "bytes": data})
        except Exception as error:  # Starlette and each server have their own type for this
            raise ConnectionResetError(f"{type(error).__name__}: {error}") from error

    async def receive_bytes(self) -> bytes | None:
        """Return the next binary message, or None once the connection is closed."""
        message = await self._websocket.receive()
        data = message.get("bytes")
        if message["type"] != "websocket.receive" or data is None:
            self._open = message["type"] != "websocket.disconnect"
            return None
        return bytes(data)

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        if not self._open:
            return
        self._open = False
        try:
            await self._websocket.send({"type": "websocket.close", "code": code, "reason": reason})
        except Exception as error:  # as in send_bytes
            raise ConnectionResetError(f"{type(error).__name__}: {error}") from error


def new_session() -> aiohttp.ClientSession:
    """Return the session that a process opens its links with; the caller closes it."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, trust_env=False)


async def connect_socket(
    session: aiohttp.ClientSession,
    address: str,
    path: str,
    headers: Callable[[], Mapping[str, str]],
) -> Socket:
    """Open a link's WebSocket.

    Args:
        session: From `new_session`.
        address: The engine's advertised address, http://host:port.
        path: WORKER_PATH or PEER_PATH.
        headers: Called for each connection: the token that the engine asks for, if any.

    Raises:
        LinkClosedError: The engine cannot be reached, refuses, or does not answer in time.
    """
    url = address.rstrip("/") + path
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            socket = await session.ws_connect(
                url,
                headers=dict(headers()),
                compress=0,
                autoping=True,
                heartbeat=None,
                max_msg_size=FRAME_BYTES_MAX + 1,
                timeout=aiohttp.ClientWSTimeout(ws_close=0.4),
            )
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise LinkClosedError(f"cannot open {url}: {type(error).__name__}: {error}") from error
    return ClientSocket(socket)


__all__ = [
    "PEER_PATH",
    "WORKER_PATH",
    "ClientSocket",
    "ServerSocket",
    "connect_socket",
    "new_session",
]
