"""Fixtures of the tests of proofs: engines, and the shop whose services keep books."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from tests.engine.bed import Bed, running_bed
from tests.service.mocks_fixture import shop
from worker.orders import Order
from worker.shop import Addresses, Shop
from worker.subscription import subscription

SERVICES = ("payments", "shipping", "drivers")
PROMPT = {"delivery_seconds_min": 0.05, "delivery_seconds_max": 0.1}


@pytest.fixture
async def bed(dsn: str) -> AsyncIterator[Bed]:
    """One engine with the embedded transport."""
    async with running_bed(dsn) as bed:
        yield bed


@pytest.fixture
async def market(dsn: str) -> AsyncIterator[Bed]:
    """Two engines, the three services, and a worker for the shop's workflows."""
    async with AsyncExitStack() as stack:
        bed = await stack.enter_async_context(running_bed(dsn, engines=2))
        told = {**PROMPT, "engines": ",".join(bed.addresses)}
        mocks = [await stack.enter_async_context(shop(one, bed.dsn, **told)) for one in SERVICES]
        http = await stack.enter_async_context(aiohttp.ClientSession())
        activities = Shop(http, Addresses(*(one.url for one in mocks))).all_activities()
        await bed.start_worker([Order, subscription], activities)
        yield bed
