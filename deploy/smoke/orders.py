"""Orders over the published API, as a client outside of the containers places them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import aiohttp

from odin.client import Client
from odin.core.ids import DEFAULT_NAMESPACE
from odin.core.sharding import shard_of
from odin.errors import OdinError

from .running import SmokeError

ASK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Orders:
    """Places orders and asks who owns what.

    Attributes:
        addresses: The engines' published addresses.
        token: What lets a client in.
    """

    addresses: Sequence[str]
    token: str

    async def place(self, workflow_id: str, seconds: float) -> Mapping[str, Any]:
        """Place an order and return its receipt.

        Raises:
            SmokeError: it was refused, or did not end as an order should.
        """
        purchase = {
            "order_id": workflow_id,
            "sku": "sku-01",
            "quantity": 1,
            "amount_cents": 1_999,
            "card": "card-1",
            "limit_seconds": 240.0,
        }
        try:
            async with asyncio.timeout(seconds), self._client() as client:
                handle = await client.start_workflow("Order", purchase, id=workflow_id)
                receipt: dict[str, Any] = await handle.result()
        except TimeoutError:
            raise SmokeError(f"{workflow_id} did not end within {seconds:.0f} s") from None
        except OdinError as error:
            raise SmokeError(f"{workflow_id}: {error}") from error
        if receipt.get("status") != "completed":
            raise SmokeError(f"{workflow_id} ended as {receipt}")
        return receipt

    async def owned_by(self, node_id: str) -> set[int]:
        """Return the shards that an engine owns."""
        shards = await self._get("/v1/shards")
        return {int(one["shard_id"]) for one in shards["items"] if one["node_id"] == node_id}

    async def id_in(self, shard_ids: set[int], prefix: str) -> str:
        """Return a workflow id that falls into one of these shards.

        Raises:
            SmokeError: there is no shard to fall into.
        """
        if not shard_ids:
            raise SmokeError("the engine owns no shard")
        shard_count = int((await self._get("/v1/cluster"))["shard_count"])
        names = (f"{prefix}-{number}" for number in count())
        return next(n for n in names if shard_of(DEFAULT_NAMESPACE, n, shard_count) in shard_ids)

    async def status_without_token(self) -> int:
        """Return what the API says to somebody who has no token."""
        url = f"{self.addresses[0]}/v1/cluster"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status

    def _client(self) -> Client:
        return Client(self.addresses, api_key=self.token, identity="smoke")

    async def _get(self, path: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        url = f"{self.addresses[-1]}{path}"
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
                session.get(url, raise_for_status=True) as answer,
            ):
                found: dict[str, Any] = await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SmokeError(f"{url}: {type(error).__name__}: {error}") from error
        return found
