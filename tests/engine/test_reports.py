"""Faults that other engines' users have met: docs/reports.md says which, and what holds here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import ClassVar
from urllib.parse import urlsplit, urlunsplit

import pytest

from cluster.ports import choose_ports
from cluster.proxy.exchange import Exchange
from cluster.proxy.faults import Fault, Order
from cluster.proxy.settings import Wire
from engine.store import ClusterView, Store
from odin import activity, workflow
from odin.client import WorkflowFailureError
from odin.common import RetryPolicy
from odin.errors import OutcomeUnknownError, UnavailableError
from odin.runtime.services import checkout
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import ACTIVITIES, SECOND, WORKFLOWS, sleeper
from tests.faults.wires import LINK

begun: list[str] = []


@activity.defn
async def fail(key: str) -> None:
    """Fail each time."""
    begun.append(key)
    raise ValueError("not today")


@activity.defn
async def outlast(key: str, milliseconds: int) -> str:
    """Take long, alive all the while: the worker beats for an async activity by itself."""
    begun.append(key)
    await asyncio.sleep(milliseconds / 1000)
    return key


@workflow.defn
class FailAfterSignal:
    """A step that fails, without a second attempt, after a wait."""

    def __init__(self) -> None:
        self.may_go = False

    @workflow.signal
    def go(self) -> None:
        """End the wait."""
        self.may_go = True

    @workflow.run
    async def run(self, key: str) -> None:
        """Wait, then fail."""
        await workflow.wait_condition(lambda: self.may_go)
        await workflow.execute_activity(
            fail,
            key,
            start_to_close_timeout=5 * SECOND,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


@workflow.defn
async def patient(key: str, milliseconds: int) -> str:
    """An activity that lasts several times as long as it may be silent."""
    return await workflow.execute_activity(
        outlast,
        args=[key, milliseconds],
        start_to_close_timeout=30 * SECOND,
        heartbeat_timeout=timedelta(milliseconds=600),
    )


async def test_a_step_that_fails_without_retries_after_a_wait_fails_its_run(bed: Bed) -> None:
    await bed.start_worker([FailAfterSignal], [fail])
    handle = await bed.client.start_workflow(FailAfterSignal.run, "after-wait", id="after-wait")
    await handle.signal(FailAfterSignal.go)
    async with asyncio.timeout(15):
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert begun.count("after-wait") == 1


async def test_an_activity_that_beats_is_not_begun_again_however_long_it_takes(bed: Bed) -> None:
    await bed.start_worker([patient], [outlast])
    async with asyncio.timeout(20):
        result = await bed.client.execute_workflow(patient, args=["beats", 2400], id="beats")
    assert (result, begun.count("beats")) == ("beats", 1)


async def test_a_quiet_shard_that_was_taken_away_is_noticed_without_a_write(bed: Bed) -> None:
    before = {row["shard_id"]: row["range_id"] for row in await bed.fetch("TABLE shard")}
    await bed.execute("UPDATE shard SET range_id = range_id + 1")
    await bed.until(
        "SELECT bool_and(shard.range_id >= 2 + before.range_id) FROM shard"
        " JOIN unnest($1::int[], $2::bigint[]) AS before (shard_id, range_id) USING (shard_id)",
        list(before),
        list(before.values()),
        seconds=10,
    )


async def test_a_timer_of_a_quiet_shard_that_was_taken_away_fires(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(sleeper, 1500, id="quiet")
    await bed.until("SELECT EXISTS (SELECT FROM event WHERE type = 'timer_started')")
    await bed.execute("UPDATE shard SET range_id = range_id + 1")
    async with asyncio.timeout(15):
        await handle.result()


class Reluctant(Store):
    """A store whose looks and acquisitions fail, three of each, before any goes through."""

    done: ClassVar[Counter[str]] = Counter()

    async def cluster_view(self) -> ClusterView:
        """Fail at first."""
        self.done["view"] += 1
        if self.done["view"] <= 3:
            raise UnavailableError("the database did not answer", reason="STORE_UNAVAILABLE")
        return await super().cluster_view()

    async def acquire(self, shard_id: int, incarnation: str, *, holds_term: bool) -> int | None:
        """Take it, and lose the reply at first."""
        taken = await super().acquire(shard_id, incarnation, holds_term=holds_term)
        self.done["acquire"] += 1
        if self.done["acquire"] <= 3:
            raise OutcomeUnknownError("taken, and nobody was told")
        return taken


async def test_errors_of_the_database_in_a_takeover_leave_no_shard_without_a_term(
    dsn: str,
) -> None:
    Reluctant.done.clear()
    async with running_bed(dsn, store_type=Reluctant) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for number in range(24):
                group.create_task(bed.client.execute_workflow(sleeper, 1, id=f"all-{number}"))
    assert Reluctant.done["acquire"] > 8


@asynccontextmanager
async def postgres_by_proxy(dsn: str) -> AsyncIterator[tuple[str, Exchange]]:
    """The address of the database through a link that can be broken."""
    url = urlsplit(dsn)
    assert url.hostname is not None
    assert url.port is not None
    port = choose_ports(["link"])["link"]
    exchange = Exchange([Wire("engine-1", "postgres", port, url.hostname, url.port)])
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(exchange.run(stop))
        await exchange.is_open.wait()
        yield (
            urlunsplit(url._replace(netloc=url.netloc.replace(str(url.port), str(port)))),
            exchange,
        )
        stop.set()


@asynccontextmanager
async def engine_process(dsn: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An engine of its own process, once it has listened; killed if it is still there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "engine",
        cwd=checkout(),
        env={
            "PATH": os.environ["PATH"],
            "ODIN_POSTGRES_DSN": dsn,
            "ODIN_BROKER": "embedded",
            "ODIN_NODE_ID": "cut-off",
            "ODIN_HTTP_PORT": "0",
            "ODIN_SHARD_COUNT": "8",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(15):
            while b'"listening"' not in await process.stdout.readline():
                pass
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_an_engine_that_cannot_reach_its_database_ends_within_its_time(dsn: str) -> None:
    async with postgres_by_proxy(dsn) as (through, exchange), engine_process(through) as process:
        order = Order(links=[LINK], fault=Fault(mode="blackhole"), seconds=40)
        fault_id = await exchange.begin(order)
        process.terminate()
        # 5 s to drain, 2 s to close what is open, 3 s for what does not end: and some to spare.
        async with asyncio.timeout(12):
            assert await process.wait() is not None
        await exchange.heal(fault_id)
