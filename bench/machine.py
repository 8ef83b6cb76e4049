"""Where a benchmark ran: machine, versions, durability."""

from __future__ import annotations

import asyncio
import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import aio_pika
from aiormq.exceptions import AMQPError

from odin.runtime.services import checkout
from odin.runtime.valkey import ValkeyClient, ValkeyDownError

from .database import Database
from .local import Cluster

PACKAGES: Final = ("odin-workflows", "uvloop", "asyncpg", "aio-pika", "aiohttp", "msgspec")
ASK_SECONDS: Final = 5.0


def machine() -> dict[str, str]:
    """Return what this machine is."""
    return {
        "cpu": _first_field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _first_field("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
    }


async def versions(cluster: Cluster, database: Database | None) -> dict[str, str]:
    """Return the versions of whatever can be asked."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if commit := await _commit():
        found["commit"] = commit
    if database is not None:
        found["postgres"] = await database.version()
    if cluster.amqp_url:
        found["rabbitmq"] = await _rabbitmq(cluster.amqp_url)
    if cluster.valkey_url:
        found["valkey"] = await _valkey(cluster.valkey_url)
    return found


async def durability(broker: str, database: Database | None) -> dict[str, str]:
    """Return what a commit and a confirm are worth."""
    found = {} if database is None else await database.durability()
    if broker == "rabbitmq":
        found["queues"] = "quorum, persistent messages, publisher confirms"
    return found


async def _rabbitmq(url: str) -> str:
    try:
        connection = await aio_pika.connect(url, timeout=ASK_SECONDS)
        async with connection:
            transport = connection.transport
            if transport is None:
                return "unknown"
            told = transport.connection.server_properties.get("version")
    except (AMQPError, OSError):
        return "unknown"
    return told.decode() if isinstance(told, bytes) else str(told)


async def _valkey(url: str) -> str:
    client = ValkeyClient(url, call_seconds_max=ASK_SECONDS)
    try:
        async with client.call() as valkey:
            told = await valkey.info("server")
    except ValkeyDownError:
        return "unknown"
    finally:
        await client.close()
    return str(told.get("valkey_version") or told.get("redis_version", "unknown"))


async def _commit() -> str:
    """Return which state of the code this is, if it is a checkout with git at hand."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(checkout()), "describe", "--always", "--dirty"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    output, _ = await process.communicate()
    return output.decode().strip() if process.returncode == 0 else ""


def _first_field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")
