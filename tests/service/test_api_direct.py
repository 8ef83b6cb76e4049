"""What the API serves without the framework's layers is what it would serve through them."""

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from engine.api import create_app
from odin.core.payload import REQUEST_BYTES_MAX
from odin.core.requests import ClientRequest
from odin.errors import OdinError, ResourceExhaustedError
from tests.service.api_backend import MemoryBackend
from tests.service.api_server import serving

OPENS = "a-token-of-the-tests"
OPENED = {"authorization": f"Bearer {OPENS}"}
JSON = {**OPENED, "content-type": "application/json"}
START = b'{"workflow_id":"order-7","workflow_type":"t","request_id":"r"}'
Requested = tuple[str, str, dict[str, str], bytes | None]
Received = tuple[int, dict[str, str], bytes]

STARTED: Requested = ("POST", "/v1/executions", JSON, START)
REQUESTS: dict[str, Requested] = {
    "start": ("POST", "/v1/executions", JSON, START.replace(b"-7", b"-8")),
    "start again": STARTED,
    "start in the way": ("POST", "/v1/executions", JSON, START.replace(b'"r"', b'"other"')),
    "no JSON": ("POST", "/v1/executions", JSON, b"{"),
    "text": ("POST", "/v1/executions", OPENED, START),
    "large": ("POST", "/v1/executions", JSON, b" " * (REQUEST_BYTES_MAX + 1)),
    "no token": ("POST", "/v1/executions", {"content-type": "application/json"}, START),
    "wrong token": ("GET", "/v1/executions/order-7", {"authorization": "Bearer no"}, None),
    "foreign": ("POST", "/v1/executions", {**JSON, "origin": "http://evil"}, START),
    "foreign fetch": ("POST", "/v1/executions", {**JSON, "sec-fetch-site": "cross-site"}, START),
    "wait": ("GET", "/v1/executions/order-7/wait?wait=0", OPENED, None),
    "wait for none": ("GET", "/v1/executions/nobody/wait?wait=0", OPENED, None),
    "unknown parameter": ("GET", "/v1/executions/order-7/wait?weit=0", OPENED, None),
    "escaped id": ("GET", "/v1/executions/order%2D7", OPENED, None),
    "escaped slash": ("GET", "/v1/executions/order%2F7", OPENED, None),
    "wrong id": ("GET", "/v1/executions/%20", OPENED, None),
    "trailing slash": ("GET", "/v1/executions/order-7/", OPENED, None),
    "signal": ("POST", "/v1/executions/order-7/signals/go", JSON, b'{"request_id":"s"}'),
    "cancel": ("POST", "/v1/executions/order-7/cancel", JSON, b'{"request_id":"c"}'),
    "describe": ("GET", "/v1/executions/order-7", OPENED, None),
    "history": ("GET", "/v1/executions/order-7/history", OPENED, None),
    "list": ("GET", "/v1/executions?limit=1", OPENED, None),
    "head": ("HEAD", "/v1/executions/order-7", OPENED, None),
    "not allowed": ("DELETE", "/v1/executions/order-7", OPENED, None),
    "no route": ("GET", "/v1/nothing", OPENED, None),
    "health": ("GET", "/v1/health", {}, None),
    "document": ("GET", "/v1/openapi.json", OPENED, None),
}


@dataclass
class Served:
    """The API as it is served, and the same served through the framework alone."""

    sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession]
    backends: tuple[MemoryBackend, MemoryBackend]

    async def told(self, requested: Requested) -> list[Received]:
        """Return what both answer."""
        return [await told(session, requested) for session in self.sessions]


async def told(session: aiohttp.ClientSession, requested: Requested) -> Received:
    method, path, headers, body = requested
    data = None if body is None else io.BytesIO(body)
    async with session.request(
        method, URL(path, encoded=True), headers=headers, data=data
    ) as response:
        kept = {key.lower(): value for key, value in response.headers.items()}
        return response.status, kept, await response.read()


def through_the_framework(app: FastAPI) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await FastAPI.__call__(app, scope, receive, send)

    return served


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Served]:
    backends = MemoryBackend(), MemoryBackend()
    direct, layered = (create_app(backend, token=OPENS) for backend in backends)
    async with (
        serving(direct) as url,
        serving(through_the_framework(layered)) as layered_url,
        aiohttp.ClientSession(url) as session,
        aiohttp.ClientSession(layered_url) as layered_session,
    ):
        both = Served((session, layered_session), backends)
        await both.told(STARTED)
        yield both


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_is_answered_like_through_the_framework(name: str, served: Served) -> None:
    direct, layered = await served.told(REQUESTS[name])
    assert direct == layered


async def test_a_refusal_says_when_to_ask_again_like_through_the_framework(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = ResourceExhaustedError("full", retry_after=3.0)
    for backend in served.backends:
        monkeypatch.setattr(backend, "before", lambda _: full)
    direct, layered = await served.told(REQUESTS["signal"])
    assert direct == layered
    assert direct[1]["retry-after"] == "3"


async def test_what_nobody_foresaw_is_hidden_like_through_the_framework(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: ClientRequest) -> OdinError | None:
        raise ZeroDivisionError("a secret")

    for backend in served.backends:
        monkeypatch.setattr(backend, "before", broken)
    for status, headers, body in await served.told(REQUESTS["signal"]):
        assert (status, headers["content-type"]) == (500, "application/problem+json")
        assert b"error_id" in body
        assert b"secret" not in body


async def test_what_is_served_directly_asks_no_router_of_the_framework() -> None:
    app = create_app(MemoryBackend(), token=OPENS)
    app.router.routes.clear()
    async with serving(app) as url, aiohttp.ClientSession(url) as session:
        assert (await told(session, STARTED))[0] == 201
        assert (await told(session, REQUESTS["document"]))[0] == 404
