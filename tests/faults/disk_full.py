"""`python -m tests.faults.disk_full`: Postgres's disk fills up under an engine, and is freed again.

The disk is a small tmpfs in a mount namespace of its own, which takes no root where user namespaces
are allowed. A ballast file takes what is free; starts are sent until Postgres can write no more.
Each of them must be accepted for good, or refused in a way that says "ask again" and why; asked
again under its request id once there is room, each must come to exactly one run, and every run must
finish.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from cluster.servers import postgres
from cluster.servers.common import run
from cluster.servers.postgres import PostgresServer
from odin.client import Client
from odin.errors import OdinError, StoreFullError, UnavailableError
from odin.runtime.migrate import migrate
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import ACTIVITIES, WORKFLOWS, one_step
from tests.engine.test_outcomes import check_histories

from .bed import say

DISK_MB: Final = 320
BYTES_OF_INPUT: Final = 16_000
REFUSALS: Final = 5
FULL_SECONDS: Final = 90.0
ROOM_SECONDS: Final = 90.0
_HOLD: Final = 'mount -t tmpfs -o size="$1"m,mode=0700 disk "$2" && echo mounted && exec sleep 1000'


class SmallDisk:
    """A tmpfs that only processes inside of its namespaces see at its place."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._seen = Path(f"/proc/{pid}/root{folder}")

    @property
    def entering(self) -> tuple[str, ...]:
        """The command that runs another one inside."""
        return (
            *("nsenter", "--preserve-credentials", "--user", "--mount", f"--target={self._pid}"),
            *postgres.NAMESPACE,
        )

    def free(self) -> int:
        """How many bytes are left."""
        found = os.statvfs(self._seen)
        return found.f_bavail * found.f_frsize

    def fill(self, spare: int) -> None:
        """Leave only that many bytes."""
        with (self._seen / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, self.free() - spare)

    def make_room(self) -> None:
        """Give back what was taken."""
        (self._seen / "ballast").unlink()


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncIterator[SmallDisk]:
    """Mount a small disk at the folder; it is gone with the process that holds it."""
    folder.mkdir()  # noqa: ASYNC240 - one call before anything runs
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", _HOLD, "sh")
    holder = await asyncio.create_subprocess_exec(
        *command, str(DISK_MB), str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        if await holder.stdout.readline() != b"mounted\n":
            raise RuntimeError("no small disk: user and mount namespaces are not to be had here")
        yield SmallDisk(holder.pid, folder)
    finally:
        holder.kill()
        await holder.wait()


class SmallPostgres(PostgresServer):
    """A Postgres whose data lies on the small disk; its log and password lie beside it."""

    def __init__(self, folder: Path, disk: SmallDisk, place: Path) -> None:
        super().__init__(folder, os.environ)
        self._disk, self._data = disk, place / "data"

    async def _initialise(self, folder: Path) -> None:
        await run(
            [
                *self._disk.entering,
                str(folder / "initdb"),
                f"--pgdata={self._data}",
                f"--username={postgres.USER}",
                f"--pwfile={self.folder / 'password'}",
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"),
            ],
            self._environ,
            60,
        )

    async def start(self) -> None:
        """Start inside, on what is there already."""
        found = postgres.programs()
        self._identity = postgres.Identity(namespace=self._disk.entering)
        if not self._has_data:
            await self._initialise(found)
            self._has_data = True
        await self._launch(found)
        await self._ensure_database()

    _has_data = False


class Starts:
    """Starts under ids of their own: what became of each."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self.accepted: list[str] = []
        self.refused: dict[str, OdinError] = {}
        self.wrong: list[str] = []

    async def send(self, client: Client, name: str) -> None:
        """Start a run, once; note the answer."""
        try:
            await client.start_workflow(
                one_step, name + "x" * BYTES_OF_INPUT, id=name, request_id=f"r-{name}"
            )
        except OdinError as error:
            self.refused[name] = error
            is_told = isinstance(error, StoreFullError) or "last answer" in str(error)
            if not (isinstance(error, UnavailableError) and error.retryable and is_told):
                self.wrong.append(f"{name}: {type(error).__name__} {error.reason}: {error}")
        else:
            self.accepted.append(name)
            self.refused.pop(name, None)

    async def until_full(self) -> None:
        """Send starts until several in a row were refused."""
        client = Client(self._bed.addresses, timeout=timedelta(seconds=2))
        in_a_row = number = 0
        async with client, asyncio.timeout(FULL_SECONDS):
            while in_a_row < REFUSALS:
                number += 1
                await self.send(client, name := f"full-{number}")
                in_a_row = 0 if name in self.accepted else in_a_row + 1

    async def again(self) -> None:
        """Send what was refused again until it is accepted; then wait for every result."""
        client = Client(self._bed.addresses, timeout=timedelta(seconds=10))
        async with client, asyncio.timeout(ROOM_SECONDS):
            while self.refused:
                for name in list(self.refused):
                    await self.send(client, name)
            for name in self.accepted:
                result = await client.get_workflow_handle(name).result()
                if result != name + "x" * BYTES_OF_INPUT:
                    self.wrong.append(f"{name}: another result")


async def scenario(folder: Path) -> list[str]:
    """Fill the disk, free it, and return what is wrong."""
    async with small_disk(folder / "disk") as disk:
        server = SmallPostgres(folder / "postgres", disk, folder / "disk")
        await server.start()
        try:
            await migrate(server.url)
            return await _played(server, disk)
        finally:
            await server.stop()


async def _played(server: SmallPostgres, disk: SmallDisk) -> list[str]:
    async with running_bed(server.url) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        starts = Starts(bed)
        for number in range(10):
            await starts.send(bed.client, f"before-{number}")
        if starts.refused:
            return ["starts are refused before the disk is full"]
        disk.fill(spare=256 * 1024)
        await starts.until_full()
        kinds = {f"{one.reason}" for one in starts.refused.values()}
        first = next(iter(starts.refused.values()))
        say(
            f"full: {len(starts.accepted)} accepted, {len(starts.refused)} refused ({kinds}),"
            f" {disk.free()} bytes free, the server {'runs' if server.pid else 'has ended'}"
        )
        say(f"the first refusal: {first}")
        if not any(isinstance(one, StoreFullError) for one in starts.refused.values()):
            starts.wrong.append("no refusal names the cause")
        disk.make_room()
        if server.pid is None:
            await server.start()
        await starts.again()
        rows = await bed.fetch("SELECT workflow_id, count(*) FROM execution GROUP BY 1")
        runs = {row[0]: row[1] for row in rows}
        wrong = starts.wrong + [
            f"{name} has {runs.get(name, 0)} runs"
            for name in starts.accepted
            if runs.get(name) != 1
        ]
        await check_histories(bed)
        say(f"room again: {len(starts.accepted)} accepted, each with one run and its result")
        return wrong


async def main() -> int:
    """Play it; return 0 if it holds."""
    with tempfile.TemporaryDirectory(prefix="odin-disk-") as folder:
        wrong = await scenario(Path(folder))
    for one in wrong[:10]:
        say(f"    {one}")
    say("disk-full holds" if not wrong else "disk-full FAILED")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
