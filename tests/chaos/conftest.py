"""A small cluster with proxies and mock services, to be broken; one for the whole folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.support import Running, started

SETTINGS = {"ODIN_BROKER": "embedded"}


@pytest.fixture(scope="session")
async def chaos_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("chaos") / "odin"
    arguments = ("up", "--engines", "2", "--workers", "2", "--proxies")
    async with started(folder, *arguments, settings=SETTINGS) as running:
        yield running
