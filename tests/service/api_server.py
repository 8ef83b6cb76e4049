"""Serves an application over real HTTP for the length of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from odin.runtime.http import serve_http


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Yield the base URL at which `app` is served."""
    stop = asyncio.Event()
    ports: asyncio.Queue[int] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_http(app, "127.0.0.1", 0, stop, on_bound=ports.put_nowait), name="http"
        )
        try:
            yield f"http://127.0.0.1:{await asyncio.wait_for(ports.get(), 5)}"
        finally:
            stop.set()
