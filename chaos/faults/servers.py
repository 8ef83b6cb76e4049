"""Faults of the servers: the broker's alarm, terminated backends, a full disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aio_pika
import asyncpg

from odin.errors import UnavailableError

from .base import Bite
from .processes import MARGIN_SECONDS
from .undo import CLUSTER, Undo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

BLOCKED_SECONDS: Final = 2.0
MESSAGES: Final = 3
CONNECT_SECONDS: Final = 5.0
# A file system this small was made to be filled.
SMALL_BYTES_MAX: Final = 4 * 1024**3
PIECE_BYTES: Final = 1024 * 1024
BALLAST: Final = "chaos-ballast"


class Alarm:
    """RabbitMQ's memory alarm: it reads from nobody who publishes."""

    inject_seconds = 40.0
    verify_seconds = 15.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return "rabbitmq"

    async def prepare(self) -> Sequence[Undo]:
        """The cluster's record calls it off."""
        return [CLUSTER]

    async def inject(self) -> None:
        """Raise it."""
        try:
            await self._stage.levers.breaker.alarm(self._stage.seconds + 30 + MARGIN_SECONDS)
        except RuntimeError as error:  # of rabbitmqctl
            raise UnavailableError(f"the alarm cannot be raised: {error}") from error

    async def verify(self) -> Bite:
        """Publish something, and see that it is not confirmed."""
        url = self._stage.levers.secrets().amqp_url
        said = await _published(url)
        return Bite(said == "not confirmed", {"a message": said})

    async def heal(self) -> None:
        """Call it off."""
        try:
            await self._stage.levers.breaker.heal(lambda one: one.kind == "alarm")
        except RuntimeError as error:
            raise UnavailableError(f"the alarm cannot be called off: {error}") from error


class Backends:
    """Every backend of odin in Postgres is terminated."""

    inject_seconds = 15.0
    verify_seconds = 10.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before: set[int] = set()

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return f"{len(self._before)} backends of postgres"

    async def prepare(self) -> Sequence[Undo]:
        """Note which there are: whoever lost one connects again."""
        self._before = await self._stage.books.backends()
        return []

    async def inject(self) -> None:
        """Terminate them."""
        try:
            await self._stage.levers.breaker.disconnect()
        except (OSError, asyncpg.PostgresError) as error:
            raise UnavailableError(f"Postgres does not answer: {error}") from error

    async def verify(self) -> Bite:
        """None of the backends from before is left."""
        left = self._before
        for _ in range(20):
            left = self._before & await self._stage.books.backends()
            if not left:
                break
            await self._stage.clock.sleep(0.25)
        evidence = {"before": len(self._before), "left": len(left)}
        return Bite(bool(self._before) and not left, evidence)

    async def heal(self) -> None:
        """Leave it to the clients."""


class FullDisk:
    """A file takes all the room that Postgres's file system has."""

    inject_seconds = 30.0
    verify_seconds = 10.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._path = _data_folder(stage) / BALLAST
        self._size = 0

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return "the disk of postgres"

    async def prepare(self) -> Sequence[Undo]:
        """The ballast is to be deleted."""
        return [Undo(kind="remove", path=str(self._path))]

    async def inject(self) -> None:
        """Write until there is no room left."""
        await asyncio.to_thread(self._fill)

    def _fill(self) -> None:
        piece = b"\0" * PIECE_BYTES
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while piece:
                try:
                    self._size += os.write(descriptor, piece)
                except OSError:
                    piece = piece[: len(piece) // 2]
        finally:
            os.close(descriptor)

    async def verify(self) -> Bite:
        """See that there is no room."""
        free = _free_bytes(self._path.parent)
        return Bite(free == 0, {"ballast bytes": self._size, "free bytes": free})

    async def heal(self) -> None:
        """Make room."""
        await asyncio.to_thread(self._path.unlink, missing_ok=True)


def is_disk_small(stage: Stage) -> bool:
    """Return whether Postgres's data has a small file system of its own, made to be filled."""
    try:
        folder = _data_folder(stage)
        status = os.statvfs(folder)
        is_own = folder.stat().st_dev != stage.folder.stat().st_dev
    except OSError:
        return False
    return is_own and status.f_blocks * status.f_frsize <= SMALL_BYTES_MAX


def _data_folder(stage: Stage) -> Path:
    return stage.folder / "servers" / "postgres"


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


async def _published(url: str) -> str:
    """Return what becomes of messages to nobody: "confirmed", "not confirmed", "no connection".

    A connection is blocked by its first message, which may still get through itself.
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await aio_pika.connect(url)
            channel = await connection.channel(publisher_confirms=True)
    except (OSError, TimeoutError, aio_pika.exceptions.AMQPError) as error:
        return f"no connection: {error}"
    try:
        for _ in range(MESSAGES):
            async with asyncio.timeout(BLOCKED_SECONDS):
                await channel.default_exchange.publish(
                    aio_pika.Message(b""), routing_key="chaos-nobody", mandatory=False
                )
    except TimeoutError:
        return "not confirmed"
    except (OSError, aio_pika.exceptions.AMQPError) as error:
        return f"refused: {error}"
    else:
        return "confirmed"
    finally:
        transport = connection.transport
        if transport is not None:
            await transport.connection.close()
