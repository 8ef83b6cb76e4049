"""Whatever ends a cluster, nothing of it stays: no process, no port, within ten seconds."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from cluster.identity import fingerprint, is_same
from cluster.place import Place
from cluster.servers import PostgresServer
from cluster.state import write_state

from .support import (
    Running,
    ask,
    command,
    environ,
    is_closed,
    is_up,
    json_of,
    started,
    until,
)

pytestmark = pytest.mark.timeout(120)
STOP_SECONDS = 10.0
SMALL = ("up", "--engines", "2", "--workers", "1", "--load", "5")
# RabbitMQ takes as long to start as all the rest: where it is not the point, it stays away.
EMBEDDED = {"ODIN_BROKER": "embedded"}


def leaves_nothing(processes: list[tuple[int, str]], ports: list[int]) -> bool:
    return not any(is_same(*one) for one in processes) and all(map(is_closed, ports))


async def test_ctrl_c_ends_everything_within_ten_seconds(tmp_path: Path) -> None:
    async with started(tmp_path / "odin", *SMALL) as running:
        processes, ports = running.processes(), running.ports()
        assert len(processes) >= 2 + 1 + 3 + 1 + 3 + 1
        running.process.send_signal(signal.SIGINT)
        await running.ended(STOP_SECONDS)
        assert leaves_nothing(processes, ports)
        assert running.process.returncode == 0
        assert {one.phase for one in running.state.parts} == {"stopped"}
        assert not running.state.is_supervised
        code, text = await ask("ps", "--json", folder=running.place.folder)
        assert (code, json_of(text)["phase"]) == (1, "stopped")


async def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    async with started(tmp_path / "odin", *SMALL, settings=EMBEDDED) as running:
        processes, ports = running.processes(), running.ports()
        _freeze(running)  # they hold up an end in order for some seven seconds
        running.process.send_signal(signal.SIGINT)
        await until(lambda: "stopping" in running.output(), 5)
        running.process.send_signal(signal.SIGINT)
        await running.ended(3)
        assert leaves_nothing(processes, ports)


async def test_a_frozen_part_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with started(tmp_path / "odin", *SMALL, settings=EMBEDDED) as running:
        processes, ports = running.processes(), running.ports()
        _freeze(running)
        running.process.send_signal(signal.SIGINT)
        await running.ended(STOP_SECONDS)
        assert leaves_nothing(processes, ports)


async def test_a_killed_supervisor_takes_everything_with_it_and_up_begins_anew(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "odin"
    async with started(folder, *SMALL) as running:
        processes, ports = running.processes(), running.ports()
        addresses = _addresses_of_its_own(running)
        running.process.kill()
        await running.ended(2)
        await until(lambda: leaves_nothing(processes, ports), STOP_SECONDS)
        code, text = await ask("ps", "--json", folder=folder)
        assert (code, json_of(text)["phase"]) == (1, "lost")
        left_over, mark = _left_over(running)
    async with started(folder, *SMALL) as again:
        await until(lambda: not is_same(left_over.pid, mark), 1)
        left_over.wait()
        assert again.part("engine-1").phase == "running"
        assert _addresses_of_its_own(again) == addresses, "addresses stay"


def _addresses_of_its_own(running: Running) -> dict[str, str]:
    """The engines' are not among them: theirs are the usual ones whenever no other cluster is up,
    and another one of this machine may come or go at any time."""
    addresses = {one.name: one.address for one in running.state.parts if one.kind != "engine"}
    assert len({one for one in addresses.values() if one}) >= 3 + 1
    return addresses


async def test_a_cluster_is_ended_while_it_still_starts(tmp_path: Path) -> None:
    async with started(tmp_path / "odin", *SMALL, wait=False) as running:
        await until(lambda: "valkey runs" in running.output(), 20)
        processes = running.processes()
        running.process.send_signal(signal.SIGINT)
        await running.ended(STOP_SECONDS)
        assert leaves_nothing(processes, [])


async def test_a_postgres_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    first = PostgresServer(folder, os.environ)
    making = asyncio.create_task(first.start())
    await until(lambda: list(folder.glob("data*/PG_VERSION")), 20)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    await first.stop()
    left = next(folder.glob("data.new*"), folder / "data.new")  # none if it was done just now
    writer = asyncio.create_task(_writes_on(left))
    try:
        async with PostgresServer(folder, os.environ) as second:
            assert second.pid is not None
    finally:
        writer.cancel()


async def _writes_on(folder: Path) -> None:
    """What the children of a killed initdb do for a moment, for as long as it may take."""
    while True:
        _write(folder / "PG_VERSION")
        await asyncio.sleep(0.001)


def _write(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.touch()


async def test_closing_the_terminal_ends_the_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "odin"
    leader, follower = pty.openpty()
    process = subprocess.Popen(  # noqa: ASYNC220 - it needs this terminal
        ["setsid", "--ctty", *command(*SMALL, folder=folder)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environ(TERM="xterm", **EMBEDDED),
    )
    os.close(follower)
    running = Running(process, Place(folder))
    loop = asyncio.get_running_loop()
    loop.add_reader(leader, _drain, leader)
    try:
        await until(lambda: _is_up(running), 60, "the cluster runs")
        processes, ports = running.processes(), running.ports()
    finally:
        loop.remove_reader(leader)
        os.close(leader)
    await running.ended(STOP_SECONDS)
    assert leaves_nothing(processes, ports)


async def test_a_detached_cluster_is_started_followed_and_stopped_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "odin"
    up = (*SMALL, "-d")
    process = await asyncio.create_subprocess_exec(
        *command(*up, folder=folder), env=environ(**EMBEDDED), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(90):
            text, _ = await process.communicate()
        assert process.returncode == 0
        assert b"odin down" in text
        code, told = await ask("ps", "--json", folder=folder)
        assert (code, json_of(told)["phase"]) == (0, "running")
        # An engine that has taken all 64 shards by now has said more than the usual 50 lines.
        code, told = await ask("logs", "engine-1", "--lines", "1000", folder=folder)
        assert code == 0
        assert "listening" in told
        code, told = await ask("up", folder=folder)
        assert code == 4
        assert "odin down" in told
    finally:
        code, told = await ask("down", folder=folder)
    assert code == 0
    assert "stopped" in told
    code, told = await ask("down", folder=folder)
    assert code == 0
    assert "no cluster runs" in told


async def test_the_demo_ends_by_itself_verified(tmp_path: Path) -> None:
    settings = {"ODIN_DEMO_SECONDS": "8", **EMBEDDED}
    async with started(tmp_path / "odin", "demo", settings=settings, wait=False) as running:
        await until(lambda: running.process.poll() is not None, 110, "the demo ends")
        assert running.process.returncode == 0, running.output()
        assert "VERIFIED: every accepted order" in running.output()
        assert "charged twice: 0" in running.output()
        assert len(running.accepted_orders()) >= 35


def _freeze(running: Running) -> None:
    for name in ("load", "worker-1", "payments", "engine-2"):
        pid = running.part(name).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)


def _left_over(running: Running) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process that the state file names, as if the kernel had failed to end it."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    state = running.state
    part = next(one for one in state.parts if one.name == "engine-1")
    part.pid, part.fingerprint = process.pid, fingerprint(process.pid)
    write_state(running.place, state)
    return process, part.fingerprint


def _is_up(running: Running) -> bool:
    return running.place.state.exists() and is_up(running)


def _drain(descriptor: int) -> None:
    try:
        os.read(descriptor, 65_536)
    except OSError:
        return
