"""The HTTP face of a mock service: the same for all three, each brings its routes."""

from __future__ import annotations

import hmac
import logging
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import asyncpg
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from odin.errors import InvalidArgumentError
from odin.runtime.http import strict_json
from odin.runtime.settings import is_loopback

from .behaviour import BehaviourRequest
from .ledger import Answer, Call
from .ruling import problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odin.runtime.clock import Clock

    from .behaviour import Behaviours
    from .connections import Connections
    from .ledger import Ledger
    from .ruling import Route

BODY_BYTES_MAX = 16 * 1024
REPLAYED_HEADER = "Idempotency-Replayed"
_KEY = re.compile(r"[!-~]{1,500}\Z")
_UNAVAILABLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

Shape = TypeVar("Shape", bound=BaseModel)

log = logging.getLogger(__name__)


class ProblemError(Exception):
    """A request that is answered with a problem instead of an effect."""

    def __init__(self, status: int, reason: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(detail)
        self.status = status
        self.body = problem(status, reason, detail, retryable=retryable)


@dataclass(frozen=True, slots=True)
class Parts:
    """What an app is put together from. Without a token nobody may use the admin routes."""

    ledger: Ledger
    behaviours: Behaviours
    connections: Connections
    clock: Clock
    admin_token: str | None = None


def build_app(service: str, routes: tuple[Route, ...], parts: Parts) -> FastAPI:
    """Return the application of one mock service."""
    app = FastAPI(title=f"odin mock: {service}", openapi_url=None)
    for route in routes:
        app.add_api_route(route.path, _endpoint(route, parts), methods=["POST"])
    _add_admin(app, parts)
    _add_error_mapping(app)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "service": service}

    return app


def _endpoint(route: Route, parts: Parts) -> Callable[[Request], Awaitable[Response]]:
    async def perform(request: Request) -> Response:
        call = await _call_of(request, route)
        if slow := parts.behaviours.drawn("slow", route.path):
            await parts.clock.sleep(slow.delay_ms / 1_000)
        if failing := parts.behaviours.drawn("failing", route.path):
            raise ProblemError(
                failing.status, "TOLD_TO_FAIL", "this mock was told to fail", retryable=True
            )
        answer = await parts.ledger.perform(call, route.decide)
        if parts.behaviours.drawn("reset", route.path):
            await parts.connections.cut(request)
        if parts.behaviours.drawn("forgetful", route.path):
            raise ProblemError(500, "ANSWER_LOST", "the answer was lost", retryable=True)
        return _reply(answer)

    return perform


async def _call_of(request: Request, route: Route) -> Call:
    key = request.headers.get("idempotency-key", "")
    if not _KEY.match(key):
        raise ProblemError(
            400, "BAD_IDEMPOTENCY_KEY", "Idempotency-Key must be 1 to 500 printable characters"
        )
    body = await _read(request, route.body)
    digest = sha256(f"{route.path}\n{body.model_dump_json()}".encode()).digest()
    return Call(key, digest, body)


async def _read(request: Request, shape: type[Shape]) -> Shape:
    received = bytearray()
    async for part in request.stream():
        received += part
        if len(received) > BODY_BYTES_MAX:
            raise ProblemError(413, "BODY_TOO_LARGE", f"more than {BODY_BYTES_MAX} bytes")
    try:
        return shape.model_validate(strict_json(bytes(received)))
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults[:5])
        raise ProblemError(400, "BAD_BODY", told) from None
    except InvalidArgumentError as error:
        raise ProblemError(400, error.reason, str(error)) from None


def _reply(answer: Answer) -> Response:
    refused = answer.status >= 400  # noqa: PLR2004 - where HTTP's refusals begin
    return Response(
        answer.body,
        answer.status,
        headers={REPLAYED_HEADER: "true"} if answer.replayed else None,
        media_type="application/problem+json" if refused else "application/json",
    )


def _add_admin(app: FastAPI, parts: Parts) -> None:
    async def only_admin(request: Request) -> None:
        host = request.client.host if request.client else ""
        if not is_loopback(host) or not parts.admin_token:
            raise ProblemError(403, "ADMIN_CLOSED", "asks for loopback and ODIN_MOCK_ADMIN_TOKEN")
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {parts.admin_token}".encode()):
            raise ProblemError(401, "BAD_TOKEN", "the admin token is missing or wrong")

    admin = [Depends(only_admin)]

    @app.get("/admin/behaviour", dependencies=admin)
    async def show() -> dict[str, object]:
        return {"behaviours": parts.behaviours.shown()}

    @app.post("/admin/behaviour", dependencies=admin)
    async def change(request: Request) -> dict[str, object]:
        asked = await _read(request, BehaviourRequest)
        parts.behaviours.change(asked)
        log.info("behaviour changed", extra={"kind": asked.kind, "seed": asked.seed})
        return {"behaviours": parts.behaviours.shown()}


def _add_error_mapping(app: FastAPI) -> None:
    def reply(status: int, body: dict[str, object]) -> JSONResponse:
        headers = {"Retry-After": "1"} if body["retryable"] else None
        return JSONResponse(body, status, headers, media_type="application/problem+json")

    @app.exception_handler(ProblemError)
    async def on_problem(_: Request, error: ProblemError) -> JSONResponse:
        return reply(error.status, error.body)

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> JSONResponse:
        return reply(
            error.status_code, problem(error.status_code, "NO_SUCH_ROUTE", str(error.detail))
        )

    async def on_unavailable(_: Request, error: Exception) -> JSONResponse:
        log.warning("books unavailable", extra={"detail": f"{type(error).__name__}: {error}"})
        body = problem(503, "BOOKS_UNAVAILABLE", "the books cannot be reached", retryable=True)
        return reply(503, body)

    for kind in _UNAVAILABLE:
        app.add_exception_handler(kind, on_unavailable)
