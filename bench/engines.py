"""What the engines say of themselves over their API: readiness, shards, counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from odin.errors import UnavailableError

from .results import EngineFigures

CALL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1
OK: Final = 200
_DECISIONS: Final = "odin_decisions_total"
_REFUSED: Final = "odin_admission_refused_total"
_MESSAGES: Final = "odin_outbox_messages_total"


class Engines:
    """The engines of one cluster, each asked for itself."""

    def __init__(
        self, session: aiohttp.ClientSession, addresses: Sequence[str], api_key: str | None
    ) -> None:
        self.addresses = addresses
        self._session = session
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def counters(self) -> Counter[str]:
        """Return the sums of the engines' counters.

        Raises:
            UnavailableError: One does not answer.
        """
        total: Counter[str] = Counter()
        for address in self.addresses:
            status, text = await self._get(f"{address}/v1/metrics")
            if status != OK:
                raise UnavailableError(f"{address}/v1/metrics answered {status}")
            total.update(parsed(text))
        return total

    async def shards(self) -> Counter[str]:
        """Return how many shards each node owns; those without an owner stand under ""."""
        items = (await self._json("/v1/shards"))["items"]
        return Counter(one.get("node_id") or "" for one in items)

    async def worker_count(self) -> int:
        """Return how many workers are linked to every engine."""
        found: list[int] = []
        for address in self.addresses:
            _, text = await self._get(f"{address}/v1/workers")
            found.append(text.count('"incarnation"'))
        return min(found)

    async def cluster(self) -> dict[str, Any]:
        """Return the cluster as an engine sees it."""
        found: dict[str, Any] = await self._json("/v1/cluster")
        return found

    async def are_ready(self) -> bool:
        """Whether every engine says that it may be used."""
        for address in self.addresses:
            try:
                status, _ = await self._get(f"{address}/v1/ready")
            except UnavailableError:
                return False
            if status != OK:
                return False
        return True

    async def until_balanced(self, seconds: float) -> Counter[str]:
        """Wait until every shard has an owner and every engine some; return who has how many.

        When the time is up it returns what there is: a lopsided cluster works too.
        """
        shards: Counter[str] = Counter()
        for _ in range(int(seconds / POLL_SECONDS)):
            shards = await self.shards()
            if not shards[""] and len(+shards) >= len(self.addresses):
                return +shards
            await asyncio.sleep(POLL_SECONDS)
        return +shards

    async def _json(self, path: str) -> Any:  # noqa: ANN401 - any JSON
        address = self.addresses[0]
        try:
            async with self._session.get(address + path, headers=self._headers) as response:
                if response.status != OK:
                    raise UnavailableError(f"{address}{path} answered {response.status}")
                return await response.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(address, error) from error

    async def _get(self, url: str) -> tuple[int, str]:
        try:
            async with self._session.get(url, headers=self._headers) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(url, error) from error


def _unreachable(url: str, error: BaseException) -> UnavailableError:
    return UnavailableError(
        f"no answer from {url}: {str(error) or type(error).__name__}", reason="UNREACHABLE"
    )


def session() -> aiohttp.ClientSession:
    """Return the session for `Engines`; close it."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS))


def parsed(text: str) -> dict[str, float]:
    """Return the samples without labels of a text in Prometheus' format."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value and name.isidentifier():
            found[name] = float(value)
    return found


def figures(before: Counter[str], after: Counter[str]) -> EngineFigures:
    """Return what the counters say happened in between."""
    messages = after[_MESSAGES] - before[_MESSAGES] if _MESSAGES in after else None
    return EngineFigures(
        decisions=int(after[_DECISIONS] - before[_DECISIONS]),
        refused=int(after[_REFUSED] - before[_REFUSED]),
        messages=None if messages is None else int(messages),
    )
