"""The HTTP door: slow, huge, malformed and unknown requests, at a live engine or small bounds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

from engine.api import create_app
from odin.runtime.http import ConnectionLimits, serve_http
from odin.runtime.log import JsonFormatter
from tests.engine.bed import Bed
from tests.service.api_backend import MemoryBackend

TOKEN = "a-token-for-these-tests"  # noqa: S105 - of these tests alone
SMALL = ConnectionLimits(connections_max=5, head_seconds=0.3, head_bytes_max=2_000)


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits = SMALL, token: str | None = None) -> AsyncIterator[int]:
    """Yield the port of an API with these limits."""
    stop = asyncio.Event()
    ports: asyncio.Queue[int] = asyncio.Queue()
    app = create_app(MemoryBackend(), token=token)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_http(app, "127.0.0.1", 0, stop, on_bound=ports.put_nowait, limits=limits)
        )
        try:
            yield await asyncio.wait_for(ports.get(), 5)
        finally:
            stop.set()


async def until_closed(reader: asyncio.StreamReader, seconds: float = 5.0) -> tuple[int, str]:
    """Return status and reason of the answer that ends the connection."""
    async with asyncio.timeout(seconds):
        answer = await reader.read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return int(head.split(b" ")[1]), json.loads(body)["reason"]


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def trickle(writer: asyncio.StreamWriter, data: bytes, seconds: float) -> None:
    """Send a byte at a time until the other end has enough of it."""
    with contextlib.suppress(OSError):
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(seconds)


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with serving() as port, connected(port) as (reader, _):
        assert await until_closed(reader) == (408, "REQUEST_TOO_SLOW")


async def test_a_head_that_comes_byte_by_byte_is_cut_off() -> None:
    async with serving() as port, connected(port) as (reader, writer):
        head = b"GET /v1/health HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 100
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(trickle(writer, head, 0.02))
            # Whoever still sends may find the connection reset before it has read the answer.
            with contextlib.suppress(ConnectionResetError):
                assert await until_closed(reader) == (408, "REQUEST_TOO_SLOW")
            slow.cancel()


async def test_the_second_head_of_a_kept_connection_is_bounded_too() -> None:
    async with serving() as port, connected(port) as (reader, writer):
        writer.write(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(5):
            await reader.readuntil(b'{"ok":true}')
        await asyncio.sleep(2 * SMALL.head_seconds)  # idle between requests is allowed
        writer.write(b"GET /v1/health HTTP/1.1\r\nhost")
        assert await until_closed(reader) == (408, "REQUEST_TOO_SLOW")


async def test_an_endless_head_is_refused() -> None:
    async with serving() as port, connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"x-filler: aaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 100)
        assert await until_closed(reader) == (431, "HEAD_TOO_LARGE")


async def test_one_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async with serving(ConnectionLimits(5)) as port, contextlib.AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(port)) for _ in range(5)]
        for reader, writer in held:
            writer.write(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b'{"ok":true}')
        async with connected(port) as (reader, _):
            assert await until_closed(reader) == (503, "TOO_MANY_CONNECTIONS")
        for reader, writer in held:
            writer.write(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b'{"ok":true}')


async def test_a_hundred_slow_senders_do_not_slow_a_quick_one(
    door: Bed, api: aiohttp.ClientSession
) -> None:
    port = int(door.addresses[0].rpartition(":")[2])
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            _, writer = await stack.enter_async_context(connected(port))
            writer.write(b"POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-le")
        async with asyncio.timeout(2):
            async with api.get("/v1/shards") as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /v1/health HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\na: b\r\nco\x00l: x\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"* * *\r\n\r\n",
    ],
    ids=lambda raw: raw[:30].decode("latin-1").encode("unicode_escape").decode(),
)
async def test_what_is_no_http_is_answered_with_a_problem_and_closed(door: Bed, raw: bytes) -> None:
    port = int(door.addresses[0].rpartition(":")[2])
    async with connected(port) as (reader, writer):
        writer.write(raw)
        status, _ = await until_closed(reader)
        assert 400 <= status < 500


async def test_whoever_sends_a_huge_body_before_it_listens_learns_why_too(door: Bed) -> None:
    port = int(door.addresses[0].rpartition(":")[2])
    async with connected(port) as (reader, writer):
        writer.write(
            b"POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 20000000\r\n\r\n"
        )
        for _ in range(20):
            writer.write(b" " * 1_000_000)
            await writer.drain()
            await asyncio.sleep(0.002)
        assert await until_closed(reader) == (413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("size", [{"content-length": "10000000"}, {}], ids=["told", "chunked"])
async def test_a_huge_body_is_refused_and_its_sender_learns_why(
    api: aiohttp.ClientSession, size: dict[str, str]
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 500_000

    headers = {"content-type": "application/json", **size}
    async with api.post("/v1/executions", data=pieces(), headers=headers) as answer:
        assert answer.status == 413
        assert (await answer.json(content_type=None))["reason"] == "BODY_TOO_LARGE"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/executions"),
        ("DELETE", "/v1/executions/x"),
        ("POST", "/v1/executions/x"),
        ("GET", "/v1/executions/x/terminate"),
        ("PATCH", "/v1/health"),
        ("GET", "/"),
        ("GET", "/v1"),
        ("GET", "/v2/executions"),
        ("GET", "/v1/executions/"),
        ("GET", "/v1/executions/x/y"),
        ("GET", "/v1/executions/a%2Fb"),
        ("GET", "/v1/executions/%00"),
        ("GET", "/v1/executions/%2e%2e"),
        ("GET", "/v1/executions/..%2f..%2fetc"),
        ("GET", "/v1/executions/%E2%80%AEx"),
        ("GET", "/v1/executions/%ff"),
        ("GET", "/v1/executions/" + "x" * 201),
        ("GET", "/v1/links/worker"),
        ("TRACE", "/v1/health"),
    ],
)
async def test_a_wrong_method_or_path_is_a_problem(door: Bed, method: str, path: str) -> None:
    url = URL(door.addresses[0] + path, encoded=True)
    async with aiohttp.request(method, url) as answer:
        assert answer.status in (400, 404, 405), await answer.text()
        assert answer.content_type == "application/problem+json"
        if answer.status == 405:
            assert answer.headers["allow"]


@pytest.mark.parametrize(
    "query",
    [
        "limt=5",
        "limit=0",
        "limit=1e3",
        "limit=99999999999999999999",
        "cursor=1.x",
        "cursor=99999999999999999999.018bcfe5-6801-726b-b2a7-4de452e6b438",
        "cursor=%F0%9F%92%A9.018bcfe5-6801-726b-b2a7-4de452e6b438",
        "cursor=1.018BCFE5-6801-726B-B2A7-4DE452E6B438",
        "status=nope",
        "status=",
        "failed=maybe",
        "namespace=",
        "namespace=a%00",
        "namespace=a/b",
        "started_after=yesterday",
        "started_after=0001-01-01T00:00:00%2B23:59",
        "limit=1&limit=2",
        "a=%ff",
        "%zz",
    ],
)
async def test_a_wrong_query_is_a_400(door: Bed, query: str) -> None:
    url = URL(f"{door.addresses[0]}/v1/executions?{query}", encoded=True)
    async with aiohttp.request("GET", url) as answer:
        assert answer.status == 400, await answer.text()
        assert (await answer.json(content_type=None))["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "query",
    ["after=9007199254740992", "before=9007199254740992", "before=0", "order=desc&before=0"],
)
async def test_history_ids_at_the_ends_of_their_range_are_answered(
    door: Bed, api: aiohttp.ClientSession, query: str
) -> None:
    await door.client.start_workflow("Waits", id="ends", id_conflict_policy="use_existing")
    async with api.get(f"/v1/executions/ends/history?{query}") as answer:
        assert answer.status == 200, await answer.text()


async def test_a_token_is_asked_for_everywhere_but_health_and_readiness() -> None:
    ways = ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
    async with (
        serving(ConnectionLimits(), TOKEN) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as api,
    ):
        for path in (
            "/v1/shards",
            "/v1/executions/x",
            "/nowhere",
            "/v1/openapi.json",
            "/v1/metrics",
        ):
            for way in ways:
                headers = {"authorization": way} if way else {}
                async with api.get(path, headers=headers) as answer:
                    assert answer.status == 401, (path, way)
                    assert answer.headers["www-authenticate"].startswith("Bearer")
            async with api.get(path, headers={"authorization": f"bearer {TOKEN}"}) as answer:
                assert answer.status in (200, 404)
        for path in ("/v1/health", "/v1/ready"):
            async with api.get(path) as answer:
                assert answer.status in (200, 503)
        for path in (
            "/v1/health/../shards",
            "/v1/health%2f..%2fshards",
            "//v1/health",
            "/v1/health/",
        ):
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
            async with aiohttp.request("GET", url) as answer:
                assert answer.status in (401, 307, 404), path
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await api.ws_connect("/v1/links/worker")


async def test_control_characters_of_a_request_never_reach_a_log_line_raw(
    door: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    evil = "%0d%0aINJECTED%1b%5b31m"
    for path in (f"v1/executions/{evil}", f"{evil}", f"v1/executions?{evil}={evil}"):
        async with aiohttp.request(
            "GET", URL(f"{door.addresses[0]}/{path}", encoded=True)
        ) as answer:
            assert answer.status in (400, 404)
            text = await answer.text()
            assert "\x1b" not in text
            assert "\r" not in text
    formatter = JsonFormatter("engine", "n")
    for record in caplog.records:
        line = formatter.format(record)
        assert not any(ord(one) < 32 or ord(one) == 127 for one in line), line
