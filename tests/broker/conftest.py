"""Fixtures of the broker tier: a destination of the test's own, and a broker that may suffer."""

import os
import secrets
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.servers import RabbitmqServer
from cluster.servers.common import run
from odin.core.topology import queue_of

from .support import delete_queue

CONTROL_SECONDS = 60.0


@pytest.fixture
async def destination(rabbitmq_url: str) -> AsyncIterator[str]:
    """A destination that no other test uses; its queue is gone after the test."""
    name = f"w:test-{secrets.token_hex(6)}"
    yield name
    await delete_queue(rabbitmq_url, queue_of(name).name)


class NamedBroker(RabbitmqServer):
    """A broker that somebody else has started, and the command that controls it."""

    def __init__(self, url: str, command: str) -> None:
        self._url = url
        self._command = shlex.split(command)

    @property
    def url(self) -> str:
        return self._url

    async def control(self, *arguments: str) -> str:
        return await run([*self._command, "--quiet", *arguments], os.environ, CONTROL_SECONDS)


@pytest.fixture(scope="session")
async def own_broker(servers_folder: Path) -> AsyncIterator[RabbitmqServer]:
    """A broker for tests that hurt it: alarms, restarts, what all tests would share otherwise.

    With `ODIN_TEST_RABBITMQ_CTL`, a command that stands for `rabbitmqctl`, it is the named one.
    """
    if command := os.environ.get("ODIN_TEST_RABBITMQ_CTL"):
        yield NamedBroker(os.environ["ODIN_TEST_RABBITMQ"], command)
        return
    async with RabbitmqServer(servers_folder / "suffering-rabbitmq", os.environ) as server:
        yield server
