"""Drivers under way: hands parcels over when they are due and reports each to an engine.

Everything that is pending stands in Postgres, so a restart of the mock loses nothing. A report is
the signal `delivered` with a request id of its own: repeated at one engine after another, with a
growing pause, until one accepts it or refuses it for good (the run is closed, or unknown). A report
that arrives twice is one signal, since its request id and its body are always the same.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from zlib import crc32

import aiohttp
import asyncpg
import msgspec

from odin.core.backoff import RetryPolicySpec, delay_after
from odin.runtime.clock import pause

from .ledger import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.runtime.clock import Clock
    from odin.runtime.postgres import Pool

SIGNAL = "delivered"
BATCH_COUNT = 32
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0
CLAIM_SECONDS = 10.0
BACKOFF: Final = RetryPolicySpec(initial_interval_ms=250, maximum_interval_ms=5_000)
# Refusals of the way, not of the report: the same call may pass later, or elsewhere.
_PASSING: Final = frozenset({401, 403, 407, 408, 421, 425, 429})
_LOST_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """One delivery that an engine has not yet answered for."""

    order_id: str
    workflow_id: str
    request_id: str
    attempt: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The loop that hands over and reports.

    Attributes:
        pool: The drivers' books.
        clock: What waits.
        engines: Base addresses of the engines, any of which takes a signal.
        token: The engines' bearer token, if they want one.
    """

    pool: Pool
    clock: Clock
    engines: Sequence[str]
    token: str | None = None

    async def __call__(self, stop: asyncio.Event) -> None:
        """Look for due deliveries until told to stop; a lost database only delays them."""
        timeout = aiohttp.ClientTimeout(total=REPORT_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            while not stop.is_set():
                try:
                    found = await self._round(session)
                except _LOST_DATABASE as error:
                    log.warning("deliveries delayed", extra={"detail": type(error).__name__})
                    found = 0
                if found < BATCH_COUNT and await pause(self.clock, stop, POLL_SECONDS):
                    return

    async def _round(self, session: aiohttp.ClientSession) -> int:
        rows = await self.pool.fetch(SQL["claim_deliveries"], BATCH_COUNT, CLAIM_SECONDS)
        outcomes: dict[str, str] = {}
        reports = [_report(row) for row in rows]
        async with asyncio.TaskGroup() as group:
            for report in reports:
                group.create_task(self._report(session, report, outcomes), name=report.request_id)
        for report in reports:
            await self._record(report, outcomes[report.order_id])
        return len(rows)

    async def _report(
        self, session: aiohttp.ClientSession, report: Report, outcomes: dict[str, str]
    ) -> None:
        """Send one report to the next engine and note what came of it, as `judged` names it."""
        if not self.engines:
            outcomes[report.order_id] = "no engine is known"
            return
        # Each attempt goes to the next engine; where it begins differs from order to order.
        turn = crc32(report.order_id.encode()) + report.attempt
        engine = self.engines[turn % len(self.engines)].rstrip("/")
        url = f"{engine}/v1/executions/{quote(report.workflow_id, safe='')}/signals/{SIGNAL}"
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(url, data=report.body, headers=headers) as reply:
                outcome = judged(reply.status, await reply.content.read(BODY_BYTES_READ))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            outcome = type(error).__name__
        outcomes[report.order_id] = outcome

    async def _record(self, report: Report, outcome: str) -> None:
        if outcome == "reported" or outcome.startswith("refused"):
            state, _, why = outcome.partition(": ")
            await self.pool.execute(SQL["settle_delivery"], report.order_id, state, why)
            return
        delay = delay_after(report.attempt, BACKOFF) or 0.0
        await self.pool.execute(SQL["put_delivery_off"], report.order_id, delay, outcome)
        if report.attempt == 1:
            log.warning(
                "delivery not reported yet", extra={"order": report.order_id, "why": outcome}
            )


BODY_BYTES_READ = 4_096


def judged(status: int, body: bytes) -> str:
    """Return what an engine's answer means: "reported", "refused: <reason>", or why to try again.

    A refusal is final only if it comes from an engine: problem+json with a code, not retryable.
    """
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's successes
        return "reported"
    if not 400 <= status < 500 or status in _PASSING:  # noqa: PLR2004 - HTTP's definite refusals
        return f"status {status}"
    try:
        told = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.MsgspecError:
        return f"status {status} of something that is no engine"
    if "code" not in told or told.get("retryable"):
        return f"status {status}"
    return f"refused: {told.get('reason', told['code'])}"


def _report(row: asyncpg.Record) -> Report:
    delivered = {
        "order_id": row["order_id"],
        "driver": row["driver"],
        "delivered_at": row["delivered_at"].isoformat(),
    }
    body = msgspec.json.encode({"input": [delivered], "request_id": row["request_id"]})
    return Report(
        row["order_id"], row["workflow_id"], row["request_id"], row["attempt_count"], body
    )
