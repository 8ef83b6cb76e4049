"""Faults that bite at a statement, between asyncpg and a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from cluster.ports import choose_ports
from cluster.proxy.exchange import Exchange
from cluster.proxy.faults import Fault, Mode, Order
from cluster.proxy.patterns import Postgres
from cluster.proxy.settings import Wire

from .wires import LINK, until

WRITE = "INSERT INTO written (number) VALUES ($1) /* the write */"


class Through:
    """Postgres through a proxy, and beside it."""

    def __init__(self, exchange: Exchange, through: str, direct: asyncpg.Connection) -> None:
        self.exchange = exchange
        self.through = through
        self.direct = direct

    async def begin(self, mode: Mode) -> str:
        fault = Fault(mode=mode, pattern="the write", is_statement=True)
        order = Order(links=[LINK], fault=fault, seconds=20)
        return await self.exchange.begin(order)

    async def numbers(self) -> list[int]:
        return [row[0] for row in await self.direct.fetch("SELECT number FROM written ORDER BY 1")]


@asynccontextmanager
async def prepared(dsn: str) -> AsyncIterator[tuple[Through, asyncpg.Connection]]:
    """A connection through the proxy that has prepared the write long before any fault."""
    url = urlsplit(dsn)
    assert url.hostname is not None
    assert url.port is not None
    port = choose_ports(["link"])["link"]
    exchange, stop = (
        Exchange([Wire("engine-1", "postgres", port, url.hostname, url.port)]),
        asyncio.Event(),
    )
    through = urlunsplit(url._replace(netloc=url.netloc.replace(str(url.port), str(port))))
    async with asyncio.TaskGroup() as group:
        group.create_task(exchange.run(stop))
        await exchange.is_open.wait()
        direct = await asyncpg.connect(dsn, timeout=5)
        connection = await asyncpg.connect(through, timeout=5)
        try:
            await direct.execute("CREATE TABLE written (number integer)")
            for number in (1, 2):
                await connection.execute(WRITE, number)
            yield Through(exchange, through, direct), connection
        finally:
            connection.terminate()
            await direct.close(timeout=5)
            stop.set()


async def test_a_statement_prepared_long_ago_is_cut_after_its_sync_and_has_committed(
    dsn: str,
) -> None:
    async with prepared(dsn) as (place, connection):
        await place.begin("cut_after")
        assert await connection.fetchval("SELECT 7") == 7  # another statement does not trigger
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.execute(WRITE, 3)
        await _until_numbers(place, [1, 2, 3])


async def test_with_the_sync_withheld_the_statement_has_run_and_not_committed(dsn: str) -> None:
    async with prepared(dsn) as (place, connection):
        fault_id = await place.begin("freeze_before")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(connection.execute(WRITE, 3))
            await until(lambda: place.exchange.faults()[0].match_count == 1)
            holds = "SELECT count(*) FROM pg_locks WHERE relation = 'written'::regclass"
            async with asyncio.timeout(5):
                while not await place.direct.fetchval(holds):
                    await asyncio.sleep(0.01)
            assert await place.numbers() == [1, 2]
            assert not writing.done()
            await place.exchange.heal(fault_id)
        assert await place.numbers() == [1, 2, 3]


async def test_with_the_reply_unread_the_statement_has_committed(dsn: str) -> None:
    async with prepared(dsn) as (place, connection):
        fault_id = await place.begin("freeze_after")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(connection.execute(WRITE, 3))
            await _until_numbers(place, [1, 2, 3])
            assert not writing.done()
            await place.exchange.heal(fault_id)
        assert writing.result() == "INSERT 0 1"


async def test_a_simple_query_triggers_too(dsn: str) -> None:
    async with prepared(dsn) as (place, connection):
        await place.begin("cut_after")
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.execute("INSERT INTO written VALUES (9) /* the write */")
        await _until_numbers(place, [1, 2, 9])


def test_messages_are_followed_wherever_the_stream_is_cut() -> None:
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    start = (8 + 4).to_bytes(4, "big") + (196_608).to_bytes(4, "big") + b"u\0x\0"
    ssl = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")
    parse = message(b"P", b"s1\0SELECT 1\0\0\0")
    run = (
        message(b"B", b"\0s1\0" + b"v" * 3_000) + message(b"E", b"\0\0\0\0\0") + message(b"S", b"")
    )
    stream = ssl + start + parse + message(b"S", b"") + run + run
    for size in (1, 2, 3, 5, 7, 64, 1_000, len(stream)):
        follower = Postgres()
        texts = [
            one.text
            for at in range(0, len(stream), size)
            for one in follower.feed(stream[at : at + size])
        ]
        assert texts == [b"", b"SELECT 1", b"SELECT 1"], size
    encrypted = Postgres()
    assert encrypted.feed(ssl + b"\x16\x03\x01\x02\x00" + b"S\0\0\0\4" * 10) == []


async def _until_numbers(place: Through, numbers: list[int]) -> None:
    async with asyncio.timeout(5):
        while await place.numbers() != numbers:
            await asyncio.sleep(0.01)
