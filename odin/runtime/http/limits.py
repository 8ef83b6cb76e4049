"""What a request may cost before anybody looks at it: bytes of its body, and time to send them.

Neither uvicorn nor FastAPI limits either. The body is read here, whole, before the application
runs: a slow or endless sender holds one small buffer and no handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odin.errors import DeadlineExceededError, InvalidArgumentError, OdinError
from odin.runtime.http.problem import problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 4 * 1024 * 1024
BODY_SECONDS_MAX = 10.0
DISCARDED_BYTES_MAX = 32 * 1024 * 1024
DISCARD_SECONDS = 2.0
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class BodyLimits:
    """Reads the body of every HTTP request within `bytes_max` and `seconds_max`, or refuses it."""

    def __init__(
        self,
        app: ASGIApp,
        bytes_max: int = BODY_BYTES_MAX,
        seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        """Wrap `app`."""
        self._app = app
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the app a request whose body is complete, or answer 413 or 408 in its place."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except OdinError as error:
            status = 413 if isinstance(error, InvalidArgumentError) else 408
            if status == 413:  # noqa: PLR2004 - as the line before says
                await self._discard(receive)
            # The rest of the body is not kept, so the connection cannot carry another request.
            response = problem_response(
                error, scope["path"], status=status, headers={"Connection": "close"}
            )
            await response(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replaying(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body, None if the client went away meanwhile."""
        announced = _announced_bytes(scope)
        if announced > self._bytes_max:
            raise self._too_large()
        chunks: list[bytes] = []
        count = 0
        try:
            async with asyncio.timeout(self._seconds_max):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk: bytes = message.get("body", b"")
                    count += len(chunk)
                    if count > self._bytes_max:
                        raise self._too_large()
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the body did not arrive within {self._seconds_max:g} s",
                reason="REQUEST_TOO_SLOW",
            ) from None

    async def _discard(self, receive: Receive) -> None:
        """Read on for a moment and keep nothing.

        A connection that is closed while the sender still sends is reset, and the answer with it:
        the sender would never learn why.
        """
        left = DISCARDED_BYTES_MAX
        try:
            async with asyncio.timeout(min(DISCARD_SECONDS, self._seconds_max)):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def _too_large(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the body is larger than {self._bytes_max} bytes",
            reason="BODY_TOO_LARGE",
            details={"bytes_max": self._bytes_max},
        )


def _has_body(scope: Scope) -> bool:
    for name, _ in scope["headers"]:  # noqa: SIM110 - a generator costs more than the search
        if name in _BODY_HEADERS:
            return True
    return False


def _announced_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a receive that yields `body` once, then whatever the server still has to tell."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
