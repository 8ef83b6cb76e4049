"""A cluster of two nodes: `store` of the first, `rival` of the second."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from engine.store import Renewed, Store

from .support import IDS, SHARDS, take_all


@pytest.fixture
async def admin(dsn: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection beside the store, to look and to interfere."""
    connection = await asyncpg.connect(dsn, timeout=10)
    yield connection
    await connection.close()


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    """The store of a node that lives."""
    async with Store(dsn, IDS.incarnation()) as opened:
        await opened.open_cluster(SHARDS, "sharded")
        assert isinstance(await opened.register_node(opened.incarnation, "node-a", "a:1"), Renewed)
        yield opened


@pytest.fixture
async def rival(dsn: str, store: Store) -> AsyncIterator[Store]:
    """The store of another node that lives."""
    async with Store(dsn, IDS.incarnation()) as opened:
        assert isinstance(await opened.register_node(opened.incarnation, "node-b", "b:1"), Renewed)
        yield opened


@pytest.fixture
async def terms(store: Store) -> dict[int, int]:
    """The terms of `store`: every shard."""
    return await take_all(store, store.incarnation)
