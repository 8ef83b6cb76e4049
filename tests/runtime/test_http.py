from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import aiohttp
import pytest
from fastapi import APIRouter, Depends, FastAPI, Query, Request, WebSocket

from odin.errors import (
    ConfigurationError,
    NotOwnerError,
    RequestMismatchError,
    ResourceExhaustedError,
)
from odin.runtime.http import (
    StrictRoute,
    bind,
    install_http_rules,
    json_body,
    refuse_unknown_query,
    serve_http,
)
from odin.runtime.ids import SeededIds

SESAME = "a-token-of-some-length"


def build(**rules: Any) -> FastAPI:  # noqa: ANN401 - passed on as they are
    app = FastAPI(dependencies=[Depends(refuse_unknown_query)], openapi_url=None)
    add_answers(app)
    add_errors(app)
    install_http_rules(app, ids=SeededIds(1), **rules)
    return app


def add_answers(app: FastAPI) -> None:
    strict = APIRouter(route_class=StrictRoute)

    @app.get("/v1/health")
    async def health() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/v1/list")
    async def listed(limit: Annotated[int, Query(ge=1)] = 10) -> dict[str, int]:
        return {"limit": limit}

    @app.post("/v1/echo")
    async def echo(request: Request) -> object:
        return await json_body(request)

    @strict.post("/v1/strict")
    async def strictly(body: dict[str, Any]) -> dict[str, Any]:
        return body

    @app.websocket("/v1/link")
    async def link(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    app.include_router(strict)


def add_errors(app: FastAPI) -> None:
    @app.get("/v1/exhausted")
    async def exhausted() -> None:
        raise ResourceExhaustedError("no room", retry_after=1.2, details={"limit": "outbox_depth"})

    @app.get("/v1/not-owner")
    async def not_owner() -> None:
        raise NotOwnerError("ask postgresql://me:hunter2@db/odin")

    @app.get("/v1/mismatch")
    async def mismatch() -> None:
        raise RequestMismatchError("same id, other body")

    @app.get("/v1/broken")
    async def broken() -> None:
        raise ZeroDivisionError("the secret is 42")


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    stop, bound = asyncio.Event(), asyncio.Future[int]()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve_http(app, "127.0.0.1", 0, stop, on_bound=bound.set_result))
        async with asyncio.timeout(5):
            port = await bound
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            stop.set()


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with served(build(body_bytes_max=1_000, body_seconds_max=0.3)) as address:
        yield address


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


async def problem(
    http: aiohttp.ClientSession,
    method: str,
    url: str,
    **kwargs: Any,  # noqa: ANN401 - aiohttp's own
) -> tuple[int, dict[str, Any], dict[str, str]]:
    async with http.request(method, url, **kwargs) as answer:
        assert answer.content_type == "application/problem+json", await answer.text()
        body = json.loads(await answer.read())
        assert body["status"] == answer.status
        assert {"type", "title", "detail", "instance", "code", "reason", "retryable"} <= set(body)
        return answer.status, body, dict(answer.headers)


async def test_a_refusal_of_admission_says_when_to_come_again(
    http: aiohttp.ClientSession, url: str
) -> None:
    status, body, headers = await problem(http, "GET", f"{url}/v1/exhausted")
    assert (status, body["code"], body["retryable"]) == (429, "RESOURCE_EXHAUSTED", True)
    assert (body["retry_after_ms"], headers["Retry-After"]) == (1_200, "2")
    assert body["details"] == {"limit": "outbox_depth"}
    assert body["instance"] == "/v1/exhausted"


async def test_an_unavailable_answer_always_says_when_to_come_again_and_hides_passwords(
    http: aiohttp.ClientSession, url: str
) -> None:
    status, body, headers = await problem(http, "GET", f"{url}/v1/not-owner")
    assert (status, body["reason"], headers["Retry-After"]) == (503, "NOT_OWNER", "1")
    assert "hunter2" not in body["detail"]


async def test_an_error_may_have_a_status_of_its_own(http: aiohttp.ClientSession, url: str) -> None:
    status, body, _ = await problem(http, "GET", f"{url}/v1/mismatch")
    assert (status, body["code"]) == (422, "INVALID_ARGUMENT")


async def test_an_unforeseen_error_tells_an_id_and_nothing_else(
    http: aiohttp.ClientSession, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, body, _ = await problem(http, "GET", f"{url}/v1/broken")
    assert (status, body["code"]) == (500, "INTERNAL")
    assert "42" not in json.dumps({**body, "details": ""})
    error_id = body["details"]["error_id"]
    told = [record for record in caplog.records if getattr(record, "error_id", "") == error_id]
    assert len(told) == 1
    assert told[0].exc_info


async def test_errors_of_the_framework_have_the_same_shape(
    http: aiohttp.ClientSession, url: str
) -> None:
    missing = await problem(http, "GET", f"{url}/v1/nowhere")
    assert (missing[0], missing[1]["code"]) == (404, "NOT_FOUND")
    method = await problem(http, "DELETE", f"{url}/v1/list")
    assert (method[0], method[1]["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert method[2]["Allow"] == "GET"
    invalid = await problem(http, "GET", f"{url}/v1/list?limit=0")
    assert (invalid[0], invalid[1]["code"]) == (400, "INVALID_ARGUMENT")
    assert "query.limit" in invalid[1]["detail"]


async def test_an_unknown_query_parameter_is_refused(http: aiohttp.ClientSession, url: str) -> None:
    _, body, _ = await problem(http, "GET", f"{url}/v1/list?limt=5")
    assert body["reason"] == "UNKNOWN_PARAMETER"
    assert body["details"] == {"unknown": ["limt"], "known": ["limit"]}
    async with http.get(f"{url}/v1/list?limit=5") as answer:
        assert await answer.json() == {"limit": 5}


@pytest.mark.parametrize("path", ["/v1/echo", "/v1/strict"])
async def test_bodies_are_read_strictly(http: aiohttp.ClientSession, url: str, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    sent = {"data": b'{"a":1,"a":2}', "headers": headers}
    status, body, _ = await problem(http, "POST", f"{url}{path}", **sent)
    assert (status, body["details"]["fault"]) == (400, "duplicate_key")
    async with http.post(f"{url}{path}", json={"a": [1, "é"]}) as answer:
        assert await answer.json() == {"a": [1, "é"]}


async def test_a_body_of_another_media_type_is_refused(
    http: aiohttp.ClientSession, url: str
) -> None:
    sent = {"data": b"{}", "headers": {"Content-Type": "text/plain"}}
    status, body, _ = await problem(http, "POST", f"{url}/v1/echo", **sent)
    assert (status, body["reason"]) == (400, "BAD_CONTENT_TYPE")


async def test_a_large_body_is_refused_whether_announced_or_in_chunks(
    http: aiohttp.ClientSession, url: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 400

    for data in (b"x" * 1_001, chunks()):
        status, body, _ = await problem(http, "POST", f"{url}/v1/echo", data=data)
        assert (status, body["code"], body["reason"]) == (413, "INVALID_ARGUMENT", "BODY_TOO_LARGE")


async def test_a_body_of_exactly_the_limit_is_read(http: aiohttp.ClientSession, url: str) -> None:
    async with http.post(f"{url}/v1/echo", json="x" * 998) as answer:
        assert answer.status == 200


async def test_a_body_that_does_not_arrive_is_given_up(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    async with asyncio.timeout(5):
        answer = await reader.read()  # to the end: the connection is closed
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"REQUEST_TOO_SLOW" in answer


async def test_every_answer_tells_browsers_to_be_strict(
    http: aiohttp.ClientSession, url: str
) -> None:
    for path in ("/v1/health", "/v1/nowhere"):
        async with http.get(f"{url}{path}") as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert "Server" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_a_page_of_another_site_cannot_change_anything(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], expected: int
) -> None:
    async with http.post(f"{url}/v1/echo", json={}, headers=headers) as answer:
        assert answer.status == expected


async def test_a_page_of_this_site_may(http: aiohttp.ClientSession, url: str) -> None:
    async with http.post(f"{url}/v1/echo", json={}, headers={"Origin": url}) as answer:
        assert answer.status == 200


async def test_a_page_of_another_site_cannot_open_a_link(
    http: aiohttp.ClientSession, url: str
) -> None:
    async with http.ws_connect(f"{url}/v1/link") as socket:
        assert await socket.receive_str() == "hello"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(f"{url}/v1/link", origin="https://evil.example")
    assert refused.value.status == 403


async def test_with_a_token_everything_but_health_asks_for_it(
    http: aiohttp.ClientSession,
) -> None:
    async with served(build(token=SESAME)) as url:
        async with http.get(f"{url}/v1/health") as answer:
            assert answer.status == 200
        for wrong in ({}, {"Authorization": "Bearer nope"}, {"Authorization": SESAME}):
            status, body, headers = await problem(http, "GET", f"{url}/v1/list", headers=wrong)
            assert (status, body["code"]) == (401, "UNAUTHENTICATED")
            assert headers["WWW-Authenticate"].startswith("Bearer")
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await http.ws_connect(f"{url}/v1/link", headers=wrong)
        right = {"Authorization": f"bearer {SESAME}"}
        async with http.get(f"{url}/v1/list", headers=right) as answer:
            assert answer.status == 200


async def test_requests_in_hand_are_answered_after_the_stop(
    http: aiohttp.ClientSession,
) -> None:
    app, entered, release = FastAPI(), asyncio.Event(), asyncio.Event()

    @app.get("/slow")
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "done"

    stop, bound = asyncio.Event(), asyncio.Future[int]()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(
            serve_http(app, "127.0.0.1", 0, stop, on_bound=bound.set_result)
        )
        url = f"http://127.0.0.1:{await bound}/slow"

        async def ask() -> str:
            async with http.get(url) as answer:
                return str(await answer.json())

        asking = group.create_task(ask())
        await entered.wait()
        stop.set()
        await asyncio.sleep(0)
        assert not serving.done()
        release.set()
        assert await asking == "done"


async def test_a_request_that_never_ends_does_not_hold_the_service(
    http: aiohttp.ClientSession,
) -> None:
    app, entered = FastAPI(), asyncio.Event()

    @app.get("/stuck")
    async def stuck() -> None:
        entered.set()
        await asyncio.Event().wait()

    async def ask(url: str) -> None:
        with pytest.raises(aiohttp.ClientError):
            async with http.get(url) as answer:
                answer.raise_for_status()

    stop, bound = asyncio.Event(), asyncio.Future[int]()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(serve_http(app, "127.0.0.1", 0, stop, on_bound=bound.set_result))
        group.create_task(ask(f"http://127.0.0.1:{await bound}/stuck"))
        await entered.wait()
        stop.set()


async def test_a_port_that_is_taken_is_a_clear_refusal() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}.*ODIN_HTTP_PORT"):
            bind("127.0.0.1", port)


async def test_sockets_that_are_bound_already_are_used_and_closed() -> None:
    listener, stop = bind("127.0.0.1", 0), asyncio.Event()
    ports: list[int] = []
    port = listener.getsockname()[1]
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_http(FastAPI(), "", 0, stop, sockets=[listener], on_bound=ports.append)
        )
        async with asyncio.timeout(5):
            while not ports:
                await asyncio.sleep(0.01)
        stop.set()
    assert ports == [port]
    assert listener.fileno() == -1
