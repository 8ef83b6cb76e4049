"""What the tests of the mocks share: a mock over real HTTP, and an engine's end for signals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import asyncpg
from aiohttp import web

from mocks.assembly import running
from mocks.settings import MockSettings
from odin.runtime.settings import load

ADMIN_TOKEN = "an-admin-token-of-tests"  # noqa: S105 - opens mocks of this test run only


def settings(dsn: str, **overrides: object) -> MockSettings:
    given: dict[str, object] = {"dsn": dsn, "admin_token": ADMIN_TOKEN, **overrides}
    return load(MockSettings, **given)


@dataclass
class Shop:
    """A mock as a client sees it, and its books as they really are."""

    url: str
    dsn: str
    http: aiohttp.ClientSession

    async def post(
        self, path: str, key: str | None, body: object
    ) -> tuple[int, dict[str, Any], bool]:
        """Return status, body and whether the answer was replayed."""
        headers = {} if key is None else {"Idempotency-Key": key}
        async with self.http.post(self.url + path, json=body, headers=headers) as reply:
            replayed = reply.headers.get("Idempotency-Replayed") == "true"
            return reply.status, await reply.json(content_type=None), replayed

    async def behave(self, token: str = ADMIN_TOKEN, **asked: object) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.post(
            self.url + "/admin/behaviour", json=asked, headers=headers
        ) as reply:
            return reply.status

    async def behaviours(self) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with self.http.get(self.url + "/admin/behaviour", headers=headers) as reply:
            shown: list[dict[str, Any]] = (await reply.json())["behaviours"]
            return shown

    async def effects(self) -> list[str]:
        """The effects in the ledger, in order, read on a connection of its own."""
        return [row["effect"] for row in await rows(self.dsn, LEDGER)]


LEDGER = "SELECT effect, order_id, idempotency_key, amount_cents FROM mock_ledger ORDER BY seq"


async def rows(dsn: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        return list(await connection.fetch(query, *arguments))
    finally:
        await connection.close()


@asynccontextmanager
async def shop(service: str, dsn: str, **overrides: object) -> AsyncIterator[Shop]:
    async with (
        running(service, settings(dsn, **overrides)) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
    ):
        yield Shop(url, dsn, http)


@dataclass
class EngineEnd:
    """Stands in for an engine: answers signals as the script says, the last answer for ever."""

    script: list[tuple[int, dict[str, object]]]
    url: str = ""
    received: list[tuple[str, Any]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        self.received.append((request.path, await request.json()))
        status, body = self.script[min(len(self.received), len(self.script)) - 1]
        self.arrived.set()
        return web.json_response(body, status=status)


@asynccontextmanager
async def engine_end(*script: tuple[int, dict[str, object]]) -> AsyncIterator[EngineEnd]:
    end = EngineEnd(list(script))
    app = web.Application()
    app.router.add_post("/{path:.*}", end.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    end.url = f"http://{host}:{port}"
    try:
        yield end
    finally:
        await runner.cleanup()
