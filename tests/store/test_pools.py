"""An engine whose pools the server could never fill does not start."""

import pytest

from engine.store import Store
from engine.store.connections import PoolSizes
from odin.errors import ConfigurationError

from .support import IDS


async def test_pools_larger_than_the_server_allows_are_refused_at_the_start(dsn: str) -> None:
    store = Store(dsn, IDS.incarnation(), sizes=PoolSizes(reads=100_000))

    with pytest.raises(ConfigurationError, match="max_connections"):
        await store.open()
