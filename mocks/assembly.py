"""Puts a mock service together: its books, its HTTP face, and the loops that keep it going."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odin.errors import InvalidArgumentError
from odin.runtime.clock import SystemClock
from odin.runtime.postgres import close_pool, create_pool

from . import drivers, payments, shipping
from .app import Parts, build_app
from .behaviour import Behaviours
from .connections import Connections, listen, serve_app
from .delivery import Deliveries
from .ledger import SESSION, Ledger
from .retention import Retention
from .settings import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odin.runtime.clock import Clock
    from odin.runtime.service import Loop

    from .settings import MockSettings

SERVICES: Final = {
    "payments": payments.ROUTES,
    "shipping": shipping.ROUTES,
    "drivers": drivers.ROUTES,
}


@dataclass(frozen=True, slots=True)
class Mock:
    """A mock that listens: its base address, and the loops that must run for it to answer."""

    url: str
    loops: dict[str, Loop]


@asynccontextmanager
async def assembled(
    service: str, settings: MockSettings, clock: Clock | None = None
) -> AsyncIterator[Mock]:
    """Open everything that a mock needs; its port is bound, and answered once the loops run.

    Args:
        service: "payments", "shipping" or "drivers".
        settings: Where to listen and where the books are.
        clock: What waits and ends faults; the system's by default.

    Raises:
        InvalidArgumentError: there is no such mock.
        OSError, asyncpg.PostgresError: the port is taken, or Postgres cannot be reached.
    """
    if service not in SERVICES:
        raise InvalidArgumentError(f"no mock {service!r}: choose one of {', '.join(SERVICES)}")
    clock = clock or SystemClock()
    pool = await create_pool(
        settings.dsn.get_secret_value(),
        name="books",
        application_name=f"odin-mock-{service}",
        min_size=1,
        max_size=settings.pool_size,
        session=SESSION,
    )
    connections = Connections()
    try:
        with listen(settings.host, settings.port) as listener:
            span = (settings.delivery_seconds_min, settings.delivery_seconds_max)
            parts = Parts(
                ledger=Ledger(pool, service, span),
                behaviours=Behaviours(clock),
                connections=connections,
                clock=clock,
                admin_token=plain(settings.admin_token),
            )
            app = build_app(service, SERVICES[service], parts)
            loops: dict[str, Loop] = {
                "http": partial(serve_app, app, listener, connections),
                "retention": Retention(pool, clock, service, settings.retention),
            }
            if service == "drivers":
                token = plain(settings.engine_token)
                loops["deliveries"] = Deliveries(pool, clock, settings.engine_addresses, token)
            yield Mock(f"http://{settings.host}:{listener.getsockname()[1]}", loops)
    finally:
        await close_pool(pool)


@asynccontextmanager
async def running(
    service: str, settings: MockSettings, clock: Clock | None = None
) -> AsyncIterator[str]:
    """Run a mock inside this process for the length of the block; yields its base address."""
    stop = asyncio.Event()
    async with assembled(service, settings, clock) as mock, asyncio.TaskGroup() as group:
        for name, loop in mock.loops.items():
            group.create_task(loop(stop), name=f"{service} {name}")
        try:
            yield mock.url
        finally:
            stop.set()
