"""A local cluster as a user starts it: `python -m cluster` in a folder of its own, as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from cluster.client_log import read, starts
from cluster.identity import fingerprint, is_same, send
from cluster.place import Place
from cluster.state import ClusterState, PartState, Secrets, read_secrets, read_state

START_SECONDS = 60.0
QUICK = {"ODIN_MOCK_DELIVERY_SECONDS_MIN": "0.5", "ODIN_MOCK_DELIVERY_SECONDS_MAX": "2"}


async def until(what: Callable[[], object], seconds: float, why: str = "") -> float:
    """Wait until `what()` is true and return how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not what():
        if loop.time() - began > seconds:
            raise AssertionError(f"not in {seconds} s: {why or what}")
        await asyncio.sleep(0.05)
    return loop.time() - began


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def read_of_process(path: Path) -> str:
    """What a file below /proc says of a process; "" once that has ended."""
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Running:
    """One started cluster."""

    def __init__(self, process: subprocess.Popen[bytes], place: Place) -> None:
        self.process = process
        self.place = place

    @property
    def state(self) -> ClusterState:
        state = read_state(self.place)
        assert state is not None
        return state

    @property
    def secrets(self) -> Secrets:
        return read_secrets(self.place)

    def part(self, name: str) -> PartState:
        return next(one for one in self.state.parts if one.name == name)

    def output(self) -> str:
        return self.place.log_of("output").read_text()

    def processes(self) -> list[tuple[int, str]]:
        """Every process below the supervisor, by (pid, fingerprint); some may have ended since."""
        found = [self.process.pid]
        for pid in found:
            for listing in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in read_of_process(listing).split()]
        return [(pid, fingerprint(pid)) for pid in found]

    def ports(self) -> list[int]:
        return [int(one.address.rpartition(":")[2]) for one in self.state.parts if one.address]

    def accepted(self) -> set[str]:
        if not self.place.client_log.exists():
            return set()
        found = starts(read(self.place.client_log))
        return {one.workflow_id for one in found if one.outcome == "ok"}

    def accepted_orders(self) -> set[str]:
        return {one for one in self.accepted() if one.startswith("order-")}

    async def ended(self, seconds: float) -> int:
        await until(lambda: self.process.poll() is not None, seconds, "the supervisor ends")
        return self.process.returncode

    async def kill_part(self, name: str) -> tuple[int, int]:
        """Kill a part; return its pid, and how often it had been started again by then."""
        part = self.part(name)
        assert part.pid is not None
        os.kill(part.pid, signal.SIGKILL)
        return part.pid, part.restarts


def command(*arguments: str, folder: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "cluster", *arguments, "--folder", str(folder)]


def environ(**settings: str) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ODIN_")}
    return {**kept, "PYTHONPATH": root, **QUICK, **settings}


@asynccontextmanager
async def started(
    folder: Path, *arguments: str, settings: Mapping[str, str] | None = None, wait: bool = True
) -> AsyncIterator[Running]:
    """Start a cluster; whatever becomes of it, nothing of it is left after the block."""
    place = Place(folder)
    place.prepare()
    with place.log_of("output").open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it must be possible to outlive the loop
            command(*arguments, folder=folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ(**(settings or {})),
            start_new_session=True,
        )
    running = Running(process, place)
    below: list[tuple[int, str]] = []
    try:
        if wait:
            await until(lambda: is_up(running), START_SECONDS, "the cluster runs")
        yield running
        below = running.processes()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                await running.ended(15)
            except AssertionError:
                process.kill()
        for pid, mark in below:
            if is_same(pid, mark):
                send(pid, signal.SIGKILL)
        process.wait(timeout=5)


def is_up(running: Running) -> bool:
    assert running.process.poll() is None, running.output()
    state = read_state(running.place)
    return state is not None and state.pid == running.process.pid and state.phase == "running"


async def ask(*arguments: str, folder: Path) -> tuple[int, str]:
    """Run a command to its end; return its exit code and what it wrote to stdout."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments, folder=folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ(),
    )
    async with asyncio.timeout(30):
        text, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, text.decode()


def json_of(text: str) -> dict[str, object]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found
