"""Composes the API: routes over a backend, the token, errors of the router itself, the document."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import fastapi
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

import odin
from odin.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OdinError,
    UnauthenticatedError,
)

from .call import Answer, Endpoint, problem, send_answer
from .openapi import document
from .reading import Reading
from .routes import routes
from .writing import Writing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from .backend import Backend

TITLE: Final = "odin engine"
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)
_BEARER: Final = b"bearer "


def create_app(
    backend: Backend,
    *,
    token: str | None = None,
    mount: Callable[[FastAPI], None] | None = None,
) -> FastAPI:
    """Return the engine's HTTP API.

    Args:
        backend: The engine behind it.
        token: What every request but those for health and readiness must bear, WebSockets too;
            None: nothing is asked.
        mount: Called with the app, to add further endpoints (the links).
    """
    app = FastAPI(
        title=TITLE,
        version=odin.__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    counts: dict[tuple[str, int], int] = {}
    all_routes = routes(Writing(backend), Reading(backend, counts))
    for route in all_routes:
        known = frozenset(one.name for one in route.query)
        endpoint = Endpoint(route.name, route.handler, known, counts)
        app.router.routes.append(
            Route(route.path, endpoint, methods=[route.method], name=route.name)
        )
    described = document(all_routes, TITLE, odin.__version__)

    def openapi() -> dict[str, Any]:
        return described

    app.openapi = openapi  # type: ignore[method-assign] # how FastAPI is told of another document
    app.add_exception_handler(HTTPException, _router_error)
    if mount is not None:
        mount(app)
    if token is not None:
        is_open = frozenset(route.path for route in all_routes if route.is_open)
        app.add_middleware(TokenCheck, token=token, is_open=is_open)
    return app


class TokenCheck:
    """Lets in only who bears the token."""

    def __init__(self, app: ASGIApp, token: str, is_open: frozenset[str]) -> None:
        """Guard `app`, except the paths in `is_open`."""
        self._app = app
        self._token = token.encode()
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse with 401 (a WebSocket: by closing it before it opens)."""
        guarded = scope["type"] in {"http", "websocket"} and scope["path"] not in self._is_open
        if not guarded or self._is_borne(scope["headers"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "a token is needed"})
        else:
            error = UnauthenticatedError(
                "this API needs its token; send it as Authorization: Bearer <token> (ODIN_API_KEY)"
            )
            answer = problem(error, scope["path"])
            await send_answer(
                Answer(answer.body, answer.status, answer.content_type, _CHALLENGE), send
            )

    def _is_borne(self, headers: list[tuple[bytes, bytes]]) -> bool:
        for key, value in headers:
            if key == b"authorization":
                start, given = value[: len(_BEARER)], value[len(_BEARER) :]
                return start.lower() == _BEARER and hmac.compare_digest(given, self._token)
        return False


async def _router_error(request: fastapi.Request, error: Exception) -> Response:
    """Answer for what no route has seen: unknown paths, wrong methods."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:200]
    told: OdinError
    if status == 404:  # noqa: PLR2004 - the HTTP status
        told = NotFoundError(f"there is no route {path}", reason="NO_ROUTE")
    elif status == 405:  # noqa: PLR2004 - the HTTP status
        told = InvalidArgumentError(
            f"{request.method} is not served at {path}", reason="METHOD_NOT_ALLOWED"
        )
    elif status < 500:  # noqa: PLR2004 - the HTTP status
        told = InvalidArgumentError(str(error))
    else:
        told = InternalError("odin failed on this request")
    answer = problem(told, path)
    headers = {key.decode(): value.decode() for key, value in answer.headers}
    return Response(answer.body, status, headers, answer.content_type.decode())
