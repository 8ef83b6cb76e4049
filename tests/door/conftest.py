"""One engine and its database for the tests of a module that need no other."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.conftest import _execute, database_url
from tests.door.flows import ACTIVITIES, WORKFLOWS
from tests.engine.bed import Bed, running_bed


@pytest.fixture(scope="module")
async def door(postgres_server: str, template_database: str) -> AsyncIterator[Bed]:
    """A live engine with the embedded transport, a worker, and a client.

    It lives for one module: a test elsewhere may hold up the loop for longer than a lease.
    """
    name = f"odin_door_{secrets.token_hex(4)}"
    await _execute(postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
    async with running_bed(database_url(postgres_server, name)) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        yield bed
    await _execute(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
async def api(door: Bed) -> AsyncIterator[aiohttp.ClientSession]:
    """The engine's HTTP API."""
    async with aiohttp.ClientSession(door.addresses[0]) as session:
        yield session
