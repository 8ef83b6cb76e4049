"""A database that takes nothing, or is gone: every start is refused with the cause, or not at all.

The refusals are Postgres's own: a trigger raises with the code that a full disk would raise with,
or the connections lead through a proxy that lets nobody in. A disk that is really full:
`python -m tests.faults.disk_full`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import pytest

from cluster.ports import choose_ports
from cluster.proxy.exchange import Exchange
from cluster.proxy.faults import Fault, LinkName, Mode, Order
from cluster.proxy.settings import Wire
from odin.client import Client
from odin.errors import OdinError, StoreFullError, StoreUnavailableError
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import ACTIVITIES, WORKFLOWS, one_step
from tests.engine.test_outcomes import check_histories

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep({seconds});
    RAISE EXCEPTION 'could not extend file "base/1/2": no luck, password=hunter2'
        USING ERRCODE = '{code}';
END $$"""
ON_EVENT = "CREATE TRIGGER refuse BEFORE INSERT ON event EXECUTE FUNCTION refuse()"
ON_SHARD = "CREATE TRIGGER refuse BEFORE UPDATE ON shard EXECUTE FUNCTION refuse()"
LINK = LinkName("engine-1", "postgres")


async def refusing(bed: Bed, code: str, *triggers: str, seconds: float = 0.0) -> None:
    for statement in (REFUSE.format(code=code, seconds=seconds), *triggers):
        await bed.execute(statement)


async def start(bed: Bed, name: str, seconds: float = 1.5) -> OdinError | None:
    """Start a run under a request id of its own; return the refusal."""
    async with Client(bed.addresses, timeout=timedelta(seconds=seconds)) as client:
        try:
            await client.start_workflow(one_step, name, id=name, request_id=f"r-{name}")
        except OdinError as error:
            return error
    return None


async def finishes(bed: Bed, *names: str) -> None:
    """Ask again until each is accepted; each must be one run with its result."""
    async with asyncio.timeout(20):
        for name in names:
            while await start(bed, name) is not None:
                pass
        for name in names:
            assert await bed.client.get_workflow_handle(name).result() == name
    rows = await bed.fetch("SELECT workflow_id, count(*) FROM execution GROUP BY 1")
    assert {row[0]: row[1] for row in rows} == dict.fromkeys(names, 1)
    await check_histories(bed)


async def database_check(bed: Bed) -> tuple[bool, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{bed.addresses[0]}/v1/ready") as response,
    ):
        check = (await response.json())["checks"]["database"]
    return check["ok"], check.get("detail", "")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53100", StoreFullError, "no room left on its disk; free space"),
        ("53200", StoreUnavailableError, "out of memory"),
        ("25006", StoreUnavailableError, "takes no writes"),
    ],
    ids=["disk full", "out of memory", "read-only"],
)
async def test_a_start_that_postgres_has_no_room_for_is_refused_with_the_cause_and_may_come_again(
    bed: Bed, caplog: pytest.LogCaptureFixture, code: str, kind: type[OdinError], words: str
) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    assert await database_check(bed) == (True, "")
    await refusing(bed, code, ON_EVENT)
    caplog.set_level(logging.WARNING)
    for number in range(3):
        error = await start(bed, f"no-room-{number}")
        assert type(error) is kind
        assert error.retryable
        assert words in str(error)
        assert "could not extend file" in str(error)
        assert "hunter2" not in str(error)
    assert [one.message for one in caplog.records].count("database fails") == 1
    told = [one for one in caplog.records if one.message.startswith("write did not end well")]
    assert len(told) == 1
    is_ok, detail = await database_check(bed)
    assert not is_ok
    assert words in detail
    assert "hunter2" not in detail
    assert await bed.fetch("SELECT 1 FROM execution") == []
    owners = await bed.fetch("SELECT DISTINCT owner FROM shard")
    assert len(owners) == 1
    assert owners[0]["owner"] is not None
    await bed.execute("DROP TRIGGER refuse ON event")
    await finishes(bed, *(f"no-room-{number}" for number in range(3)))


async def test_who_waits_behind_new_ranges_that_cannot_be_taken_is_refused_with_the_cause(
    bed: Bed,
) -> None:
    """Nothing can be written at all: neither the groups, nor the ranges after them."""
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await refusing(bed, "53100", ON_EVENT, ON_SHARD, seconds=0.3)
    names = [f"stuck-{number}" for number in range(24)]  # of every shard
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        tasks = [group.create_task(start(bed, names[0], 4.0))]
        await bed.until(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE state = 'active'"
            " AND application_name LIKE 'odin-engine/%/lane0')"
        )
        tasks += [group.create_task(start(bed, name, 4.0)) for name in names[1:]]
    assert {type(task.result()) for task in tasks} == {StoreFullError}
    assert await bed.fetch("SELECT 1 FROM execution") == []
    await bed.execute("DROP TRIGGER refuse ON event")
    await bed.execute("DROP TRIGGER refuse ON shard")
    await finishes(bed, *names)


@asynccontextmanager
async def behind_a_proxy(dsn: str) -> AsyncIterator[tuple[Exchange, str]]:
    """A way to Postgres that can be shut."""
    url = urlsplit(dsn)
    assert url.hostname is not None
    assert url.port is not None
    port = choose_ports(["link"])["link"]
    exchange = Exchange([Wire(LINK.part, LINK.dependency, port, url.hostname, url.port)])
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(exchange.run(stop))
        await exchange.is_open.wait()
        try:
            yield (
                exchange,
                urlunsplit(url._replace(netloc=url.netloc.replace(str(url.port), str(port)))),
            )
        finally:
            stop.set()


@pytest.mark.parametrize(("mode", "seconds"), [("refuse", 3.0), ("blackhole", 6.0)])
async def test_a_start_while_the_database_is_gone_is_refused_with_the_cause_and_may_come_again(
    dsn: str, caplog: pytest.LogCaptureFixture, mode: Mode, seconds: float
) -> None:
    async with behind_a_proxy(dsn) as (exchange, through), running_bed(through) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        caplog.set_level(logging.WARNING)
        name = await exchange.begin(Order(links=[LINK], fault=Fault(mode=mode), seconds=60))
        for number in range(2):
            error = await start(bed, f"gone-{number}", seconds)
            assert type(error) is StoreUnavailableError
            assert "does not answer" in str(error)
        is_ok, detail = await database_check(bed)
        assert not is_ok
        assert "does not answer" in detail
        await exchange.heal(name)
        await finishes(bed, "gone-0", "gone-1")
        messages = [one.message for one in caplog.records]
        assert messages.count("database fails") == 1
        assert messages.count("bump failed, trying again") <= 1
