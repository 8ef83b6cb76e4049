"""Fixtures of the broker tier: a destination of the test's own, and a broker that may suffer."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.servers import RabbitmqServer
from odin.core.topology import queue_of

from .support import delete_queue


@pytest.fixture
async def destination(rabbitmq_url: str) -> AsyncIterator[str]:
    """A destination that no other test uses; its queue is gone after the test."""
    name = f"w:test-{secrets.token_hex(6)}"
    yield name
    await delete_queue(rabbitmq_url, queue_of(name).name)


@pytest.fixture(scope="session")
async def own_broker(servers_folder: Path) -> AsyncIterator[RabbitmqServer]:
    """A broker for tests that hurt it: alarms, restarts, what all tests would share otherwise."""
    async with RabbitmqServer(servers_folder / "suffering-rabbitmq", os.environ) as server:
        yield server
