"""A small real run: engines, workers, mocks and the load generator, and what they leave behind."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

from cluster.client_log import ClientLog
from cluster.client_log_feed import feeding
from cluster.load import Load
from cluster.load_settings import LoadSettings
from odin.client import Client
from odin.errors import OdinError
from odin.runtime.clock import SystemClock
from odin.runtime.ids import SystemIds
from odin.runtime.settings import load
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import Collect, echo, one_step, sleeper
from tests.service.mocks_fixture import shop
from worker.orders import Order
from worker.shop import Addresses, Shop
from worker.subscription import Plan, subscription

CLIENT = "test-client"
COLLECTED = "collect-1"
OPEN = "sleeper-open"
INSERT_CALL = """
INSERT INTO client_log (
    client, line, at, call_id, operation, kind, workflow_id, run_id, request_id, details
)
SELECT $1, $2 + position, clock_timestamp(), $3, operation, $4, $5,
    CASE operation WHEN 'invoke' THEN '' ELSE $6 END, $3, $7
FROM unnest($8::text[]) WITH ORDINALITY AS told (operation, position)
"""


class Teller:
    """A client that tells of its calls."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._line = 0

    async def tell(
        self,
        kind: str,
        workflow_id: str,
        request_id: str,
        *,
        end: str = "ok",
        run_id: str = "",
        details: str = "{}",
    ) -> None:
        told = ["invoke", end]
        await self._bed.execute(
            INSERT_CALL,
            *(CLIENT, self._line, request_id, kind, workflow_id, run_id, details, told),
        )
        self._line += len(told)


async def leave_behind(dsn: str, folder: Path) -> None:
    """Run a shop for a moment on two engines, one of which takes over, and stop all of it."""
    async with running_bed(dsn, engines=2, shard_count=8) as bed:
        addresses = ",".join(bed.addresses)
        quick = {"delivery_seconds_min": 0.1, "delivery_seconds_max": 0.2, "engines": addresses}
        async with (
            shop("payments", dsn) as payments,
            shop("shipping", dsn) as shipping,
            shop("drivers", dsn, **quick) as drivers,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        ):
            services = Shop(session, Addresses(payments.url, shipping.url, drivers.url))
            await bed.start_worker(
                [Order, subscription, Collect, one_step, sleeper],
                [*services.all_activities(), echo],
            )
            await _trade(bed, folder)
            await _tell_of_signals(bed)
            await _subscribe(bed)
        await bed.client.start_workflow("sleeper", 600_000, id=OPEN)
        await bed.until(
            "SELECT count(*) = 1 FROM event WHERE type = 'timer_started' AND "
            "run_id = (SELECT run_id FROM execution WHERE workflow_id = $1)",
            OPEN,
        )
        await bed.until("SELECT count(*) = 0 FROM outbox")


async def _trade(bed: Bed, folder: Path) -> None:
    """Let the load generator buy for a second, an engine losing its shards meanwhile."""
    clock = SystemClock()
    settings = load(
        LoadSettings,
        engines=",".join(bed.addresses),
        client_log=folder / "client-log.jsonl",
        demo_seconds=1.2,
        load_rate=10,
        load_subscriptions=0,
        load_decline_share=0.5,
        load_run="t",
        load_observe_every=3,
    )
    with ClientLog(settings.client_log, clock) as client_log:
        async with (
            feeding(bed.dsn, client_log, "load-t", clock),
            Client(bed.addresses, identity="load") as client,
        ):
            generator = Load(settings, client, client_log, clock, SystemIds(clock))
            async with asyncio.TaskGroup() as group:
                group.create_task(generator(asyncio.Event()))
                await bed.until("SELECT count(*) >= 3 FROM execution")
                await _take_over(bed)
    await bed.all_owned()
    await bed.until("SELECT count(*) = 0 FROM execution WHERE status = 'running'")


async def _take_over(bed: Bed) -> None:
    """Kill the engine that owns most, and let its lease be over."""
    query = """
    SELECT node.node_id FROM shard JOIN node ON node.incarnation = shard.owner
    GROUP BY 1 ORDER BY count(*) DESC LIMIT 1
    """
    [row] = await bed.fetch(query)
    await bed.kill(next(one for one in bed.engines if one.node_id == row[0]))
    await bed.execute(
        "UPDATE node SET lease_until = clock_timestamp() WHERE node_id = $1 AND state <> 'dead'",
        row[0],
    )
    await bed.until("SELECT count(*) > 0 FROM shard_term WHERE happening = 'expired'")


async def _subscribe(bed: Bed) -> None:
    """Let a chain of runs grow to three, and end it."""
    handle = await bed.client.start_workflow("subscription", Plan(0.1, 499, "visa"), id="sub-1")
    await bed.until("SELECT count(*) >= 3 FROM execution WHERE workflow_id = 'sub-1'")
    await handle.cancel()
    query = "SELECT count(*) = 0 FROM execution WHERE workflow_id = 'sub-1' AND status = 'running'"
    await bed.until(query)


async def _tell_of_signals(bed: Bed) -> None:
    """Start one workflow, signal it three times in a row, and tell of it; be refused once."""
    teller = Teller(bed)
    handle = await bed.client.start_workflow("Collect", id=COLLECTED, request_id="start-1")
    await teller.tell("start", COLLECTED, "start-1", run_id=handle.first_run_id or "")
    for number in (1, 2, 3):
        await handle.signal("add", number, request_id=f"signal-{number}")
        await teller.tell("signal", COLLECTED, f"signal-{number}")
    await handle.signal("finish", request_id="signal-4")
    await teller.tell("signal", COLLECTED, "signal-4")
    await handle.result()
    try:
        await handle.signal("add", 5, request_id="signal-5")
    except OdinError:
        await teller.tell("signal", COLLECTED, "signal-5", end="fail")
    refused = '{"reason": "RESOURCE_EXHAUSTED", "retry_after_ms": 50}'
    await teller.tell("start", "never-1", "start-refused", end="fail", details=refused)
    await teller.tell("start", "never-2", "start-unknown", end="unknown")
    described = await handle.describe()
    seen = '{"status": "' + described.status + '"}'
    await teller.tell("describe", COLLECTED, "d-1", run_id=described.run_id, details=seen)


async def clone(server: str, template: str) -> str:
    """Return the address of a copy of a database that nobody is connected to."""
    name = f"odin_{secrets.token_hex(6)}"
    await run_on(server, f'CREATE DATABASE "{name}" TEMPLATE "{urlsplit(template).path[1:]}"')
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def run_on(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
