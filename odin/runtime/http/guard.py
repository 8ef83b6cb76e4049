"""Who may talk to us: bearer token, same origin, and headers that tell browsers to be strict."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.websockets import WebSocketClose

from odin.errors import OdinError, PermissionDeniedError, UnauthenticatedError
from odin.runtime.http.problem import problem_response

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/v1/health", "/v1/ready"})
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_RAW_SECURITY_HEADERS = tuple(
    (name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY_VIOLATION = 1008


class Guard:
    """Refuses a request without the token, and one that another site's page makes a browser send.

    A browser names the page's origin in every WebSocket handshake and every request that changes
    something; programs name none. So an `Origin` that is not this host is refused, none is let in.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None = None,
        open_paths: Collection[str] = OPEN_PATHS,
        origins: Collection[str] = (),
    ) -> None:
        """Wrap `app`.

        Args:
            app: The application.
            token: The bearer token that opens every path; None asks for none.
            open_paths: Paths that need no token: liveness and readiness.
            origins: Origins besides the host itself that may send requests.
        """
        self._app = app
        self._digest = _digest(token) if token else None
        self._open_paths = frozenset(open_paths)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through to the app, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(_POLICY_VIOLATION, refusal.reason)(scope, receive, send)
        else:
            await problem_response(refusal, scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope) -> OdinError | None:
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if changes and not self._is_from_here(scope):
            return PermissionDeniedError(
                "the request comes from a page of another site", reason="FOREIGN_ORIGIN"
            )
        if self._digest is None or scope["path"] in self._open_paths:
            return None
        if hmac.compare_digest(_digest(_bearer(scope)), self._digest):
            return None
        return UnauthenticatedError("give the token as 'Authorization: Bearer ...'")

    def _is_from_here(self, scope: Scope) -> bool:
        origin = _header(scope, b"origin")
        if origin is None:
            return _header(scope, b"sec-fetch-site") in (None, "none", "same-origin")
        return origin in self._origins or urlsplit(origin).netloc == _header(scope, b"host")


class SecurityHeaders:
    """Adds the headers that keep a browser from guessing, framing and caching, where not set."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app and complete the headers of its answer."""

        async def completing(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"] = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                headers += [one for one in _RAW_SECURITY_HEADERS if one[0] not in given]
            await send(message)

        await self._app(scope, receive, completing if scope["type"] == "http" else send)


def _header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this (lower-case) name: a plain search, every request comes by."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _bearer(scope: Scope) -> str:
    scheme, _, token = (_header(scope, b"authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    """Hash, so that comparing takes the same time whatever the length."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
