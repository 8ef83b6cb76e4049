"""A mock as the process that the cluster starts."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process

import aiohttp

from odin.runtime.services import command_of, environment_of

from .mocks_fixture import Shop

BODY = {"order_id": "order-1", "amount_cents": 100, "card": "visa"}


async def start(dsn: str, *arguments: str, **environment: str) -> Process:
    env = environment_of(dict(os.environ)) | {"ODIN_MOCK_DSN": dsn} | environment
    return await asyncio.create_subprocess_exec(
        *command_of("mocks", *arguments), env=env, stderr=PIPE
    )


async def logged(process: Process, event: str) -> dict[str, str]:
    assert process.stderr
    async with asyncio.timeout(20):
        while line := await process.stderr.readline():
            record: dict[str, str] = json.loads(line)
            if record["event"] == event:
                return record
    raise AssertionError(f"the process ended without saying {event!r}")


async def test_a_mock_serves_until_it_is_told_to_stop_and_keeps_its_books(dsn: str) -> None:
    async with aiohttp.ClientSession() as http:
        replayed = []
        for _ in range(2):
            process = await start(dsn, "payments")
            url = (await logged(process, "listening"))["url"]
            await logged(process, "serving")
            status, _, again = await Shop(url, dsn, http).post("/charge", "key-1", BODY)
            assert status == 200
            replayed.append(again)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                assert await process.wait() == 0

    assert replayed == [False, True]


async def test_a_mock_that_nobody_named_refuses_to_start(dsn: str) -> None:
    for arguments in ((), ("shoes",), ("payments", "drivers")):
        process = await start(dsn, *arguments)
        record = await logged(process, "refused to go on")
        assert "payments" in record["detail"]
        assert await process.wait() == 2


async def test_a_mock_open_to_other_machines_needs_a_token(dsn: str) -> None:
    process = await start(dsn, "payments", ODIN_MOCK_HOST="0.0.0.0")  # noqa: S104 - it must be refused
    assert "ODIN_MOCK_ADMIN_TOKEN" in (await logged(process, "refused to go on"))["detail"]
    assert await process.wait() == 2
