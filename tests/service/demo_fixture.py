"""Runs the demo's workflows without an engine: real code and mocks, rows as an engine's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import asyncpg

from odin import activity
from odin.core import commands as c
from odin.core.failures import failure_of
from odin.core.payload import decode
from odin.exceptions import ApplicationError
from tests.core.replay_owner import Owner
from worker.shop import Addresses, Payment, Purchase, Shop

from .mocks_fixture import Shop as MockEnd
from .mocks_fixture import shop

RUN_ID = "01890a5d-ac96-774b-bcce-{:012d}"
STATUS = {
    c.CompleteWorkflow: "completed",
    c.FailWorkflow: "failed",
    c.CancelWorkflow: "canceled",
    c.ContinueAsNew: "continued_as_new",
}
INSERT_EXECUTION = """
INSERT INTO execution (
    shard_id, run_id, namespace, workflow_id, first_run_id, workflow_type, task_queue, origin,
    build_id, status, next_event_id, state_token, task_token, started_at, closed_at, last_event_at,
    task_timeout_ms, has_task, cancel_requested, last_message_event_id, last_visible_event_id,
    signal_count, history_bytes, pending
) VALUES (
    1, $1::text::uuid, 'default', $2, $1::text::uuid, $3, 'default', '', '', $4, $5, 1, 1, now(),
    CASE WHEN $4 = 'running' THEN NULL ELSE now() END, now(), 10000, false, false, 0, 0, 0, 0, ''
)
"""
INSERT_EVENT = """
INSERT INTO event (shard_id, run_id, event_id, type, recorded_at, range_id, txid, attributes)
VALUES (1, $1::text::uuid, $2, $3, now(), 1, pg_current_xact_id(), $4)
"""


def attempt_info(workflow_id: str, key: str, name: str) -> activity.Info:
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    return activity.Info(
        activity_id="1",
        activity_type=name,
        attempt=1,
        namespace="default",
        workflow_id=workflow_id,
        run_id=RUN_ID.format(0),
        workflow_type="Order",
        task_queue="default",
        scheduled_time=instant,
        started_time=instant,
        deadline=None,
        start_to_close_timeout=None,
        heartbeat_timeout=None,
        idempotency_key=key,
    )


@dataclass
class Demo:
    """The shop's activities over real mocks, and a database that an engine could have written."""

    dsn: str
    shop: Shop
    payments: MockEnd
    runs: int = 0

    async def attempt(self, workflow_id: str, key: str, name: str, argument: object) -> object:
        """Run one attempt of an activity as a worker does."""
        one = next(fn for fn in self.shop.all_activities() if fn.__name__ == name)
        context = activity.Context(attempt_info(workflow_id, key, name), lambda _: None)
        token = activity.current.set(context)
        try:
            return await one(argument)
        finally:
            activity.current.reset(token)

    async def play(self, owner: Owner, workflow_id: str, *, delivered: bool = True) -> None:
        """Run a workflow to its end with real activities; then leave its rows in the database."""
        owner.step()
        self.runs += 1
        while owner.closing is None:
            if not owner.activities and not delivered:
                break
            if owner.activities:
                await self._end_activity(owner, workflow_id)
            elif owner.definition.name == "Order":
                owner.signal("delivered", {"order_id": "", "driver": "d", "delivered_at": ""})
            else:
                owner.fire()
            owner.step()
        await self._record(owner, workflow_id)

    async def _end_activity(self, owner: Owner, workflow_id: str) -> None:
        ((command_id, asked),) = owner.activities.items()
        argument = decode(asked.input[0], _argument_type(asked.activity_type))
        key = f"{workflow_id}/{self.runs}/{asked.activity_id}"
        try:
            result = await self.attempt(workflow_id, key, asked.activity_type, argument)
        except ApplicationError as error:
            owner.fail(command_id, kind=failure_of(error).type)
        else:
            owner.complete(command_id, result)

    async def _record(self, owner: Owner, workflow_id: str) -> None:
        run_id = RUN_ID.format(self.runs)
        status = STATUS[type(owner.closing)] if owner.closing else "running"
        connection = await asyncpg.connect(self.dsn, timeout=10)
        try:
            async with connection.transaction():
                await connection.execute(
                    INSERT_EXECUTION,
                    *(run_id, workflow_id, owner.definition.name),
                    *(status, len(owner.history) + 1),
                )
                for event in owner.history:
                    await connection.execute(
                        INSERT_EVENT, run_id, event.event_id, event.type, event.attributes
                    )
        finally:
            await connection.close()


def _argument_type(name: str) -> type:
    return {"reserve": Purchase, "charge": Payment}.get(name, str)


@asynccontextmanager
async def demo_of(dsn: str) -> AsyncIterator[Demo]:
    slow = {"delivery_seconds_min": 600.0, "delivery_seconds_max": 600.0}
    async with (
        shop("payments", dsn) as payments,
        shop("shipping", dsn) as shipping,
        shop("drivers", dsn, **slow) as drivers,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
    ):
        addresses = Addresses(payments.url, shipping.url, drivers.url)
        yield Demo(dsn, Shop(session, addresses), payments)


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        async with asyncio.timeout(10):
            for statement in statements:
                await connection.execute(statement)
    finally:
        await connection.close()
