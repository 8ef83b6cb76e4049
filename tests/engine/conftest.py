"""Fixtures of the engine's tests."""

from collections.abc import AsyncIterator

import pytest

from tests.engine.bed import Bed, running_bed


@pytest.fixture
async def bed(dsn: str) -> AsyncIterator[Bed]:
    """One engine with the embedded transport."""
    async with running_bed(dsn) as bed:
        yield bed
