"""How the proxy takes orders: a small HTTP API on loopback, for whoever has the token.

GET    /v1/ready               200 once every link is open; the only route without the token
GET    /v1/links               every link, its connections and bytes
GET    /v1/faults              every fault that is not over
POST   /v1/faults              an order; answers {"id": …}
DELETE /v1/faults/{id}         heals one
DELETE /v1/faults              heals all
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from odin.errors import InvalidArgumentError, OdinError, UnauthenticatedError

from .faults import Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from .exchange import Exchange

BODY_BYTES_MAX = 64 * 1024
STATUS = {"INVALID_ARGUMENT": 400, "UNAUTHENTICATED": 401, "NOT_FOUND": 404}


def create_app(exchange: Exchange, token: str) -> Starlette:
    """Return the application.

    Args:
        exchange: What it controls.
        token: The bearer token that is asked for.
    """
    control = Control(exchange, token)
    return Starlette(
        routes=[
            Route("/v1/ready", control.ready),
            Route("/v1/links", control.guarded(control.links)),
            Route("/v1/faults", control.guarded(control.faults)),
            Route("/v1/faults", control.guarded(control.begin, 201), methods=["POST"]),
            Route("/v1/faults", control.guarded(control.heal_all), methods=["DELETE"]),
            Route("/v1/faults/{fault_id}", control.guarded(control.heal), methods=["DELETE"]),
        ]
    )


class Control:
    """The routes."""

    def __init__(self, exchange: Exchange, token: str) -> None:
        self._exchange = exchange
        self._token = token

    def guarded(
        self, handle: Callable[[Request], Awaitable[Any]], status: int = 200
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that asks for the token, and answers errors as JSON."""

        async def endpoint(request: Request) -> Response:
            try:
                _authenticate(request, self._token)
                return _answer(status, await handle(request))
            except OdinError as error:
                code = error.code.value
                return _answer(STATUS.get(code, 500), {"code": code, "detail": str(error)})

        return endpoint

    async def ready(self, _request: Request) -> Response:
        """Say whether every link is open."""
        return _answer(200 if self._exchange.is_open.is_set() else 503, {})

    async def links(self, _request: Request) -> Any:  # noqa: ANN401 - anything that becomes JSON
        """Show every link."""
        return self._exchange.links()

    async def faults(self, _request: Request) -> Any:  # noqa: ANN401 - anything that becomes JSON
        """Show every fault."""
        return self._exchange.faults()

    async def begin(self, request: Request) -> Any:  # noqa: ANN401 - anything that becomes JSON
        """Take an order."""
        return {"id": await self._exchange.begin(await _order(request))}

    async def heal(self, request: Request) -> Any:  # noqa: ANN401 - anything that becomes JSON
        """Heal one fault."""
        return {"healed": int(await self._exchange.heal(request.path_params["fault_id"]))}

    async def heal_all(self, _request: Request) -> Any:  # noqa: ANN401 - anything that becomes JSON
        """Heal everything."""
        return {"healed": await self._exchange.heal_all()}


def _authenticate(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise UnauthenticatedError("the proxy takes orders only with its token")


async def _order(request: Request) -> Order:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise InvalidArgumentError(f"an order has at most {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(body, type=Order)
    except msgspec.MsgspecError as error:
        raise InvalidArgumentError(f"not an order: {error}") from None


def _answer(status: int, body: object) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
