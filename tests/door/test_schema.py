"""A database that does not fit the code, or the cluster: the engine says so in a line, and ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import asyncpg
import pytest

from odin.runtime.services import checkout

CHANGES: dict[str, tuple[str, str]] = {
    "newer": (
        "INSERT INTO schema_migration (number, name, checksum) VALUES (9999, '9999_x', 'x')",
        "run the newer release",
    ),
    "older": (
        "DELETE FROM schema_migration WHERE number = (SELECT max(number) FROM schema_migration)",
        "odin migrate",
    ),
    "none": ("DROP TABLE schema_migration", "odin migrate"),
    "edited": (
        "UPDATE schema_migration SET checksum = 'other' WHERE number = 1",
        "must not be edited",
    ),
    "another shard count": ("SELECT create_cluster(17, 'sharded')", "17"),
    "another mode": ("SELECT create_cluster(8, 'standby')", "standby"),
}


async def run_engine(dsn: str) -> tuple[int, list[dict[str, object]]]:
    """Run the engine as a process; return its exit code and what it logged from warnings on."""
    environment = {
        "PATH": os.environ["PATH"],
        "ODIN_POSTGRES_DSN": dsn,
        "ODIN_BROKER": "embedded",
        "ODIN_NODE_ID": "door",
        "ODIN_HTTP_PORT": "0",
        "ODIN_SHARD_COUNT": "8",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "engine",
        cwd=checkout(),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(20):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    lines = [json.loads(line) for line in output.decode().splitlines()]
    assert process.returncode is not None
    return process.returncode, [line for line in lines if line["level"] in ("error", "critical")]


@pytest.mark.parametrize("what", CHANGES)
async def test_an_engine_refuses_a_database_that_does_not_fit_in_one_line(
    dsn: str, what: str
) -> None:
    statement, said = CHANGES[what]
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()
    code, errors = await run_engine(dsn)
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert said in str(errors[0]), errors
