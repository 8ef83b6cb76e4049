"""One part under the supervisor, with stand-ins for parts: small programs that misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from cluster import runner as runner_module
from cluster.identity import end_recorded, fingerprint, is_same
from cluster.parts import Part
from cluster.ports import choose_ports
from cluster.runner import PartRunner
from odin.runtime.clock import SystemClock

from .support import is_closed, until

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)


def part(code: str, *, port: int = 0, ends: bool = False) -> Part:
    command = [sys.executable, "-c", code]
    return Part("part", "worker", command, {"PATH": os.environ["PATH"]}, port=port, ends=ends)


@asynccontextmanager
async def kept(one: Part, tmp_path: Path) -> AsyncIterator[PartRunner]:
    runner = PartRunner(one, tmp_path / "part.log", SystemClock())
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        try:
            yield runner
        finally:
            await runner.end(0.2)


async def test_a_part_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async with kept(part(SLEEP), tmp_path) as runner:
        await until(lambda: runner.state.phase == "running", 5)
        first = runner.state.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: runner.state.restarts == 1 and runner.state.phase == "running", 5)
        assert runner.state.pid not in (None, first)
        assert runner.state.exit_code == -signal.SIGKILL


async def test_a_part_that_keeps_crashing_is_started_more_and_more_rarely(tmp_path: Path) -> None:
    stamps = tmp_path / "stamps"
    code = f"import time; open({str(stamps)!r}, 'a').write(f'{{time.monotonic()}}\\n'); exit(1)"
    async with kept(part(code), tmp_path):
        await until(lambda: stamps.exists() and len(stamps.read_text().split()) >= 3, 10)
    first, second, third = (float(one) for one in stamps.read_text().split()[:3])
    assert 0.5 <= second - first < 1.0 <= third - second < 1.8


async def test_a_part_that_lived_long_is_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "LIFE_SECONDS", 0.3)
    stamps = tmp_path / "stamps"
    code = (
        "import time\n"
        "time.sleep(0.4)\n"
        f"open({str(stamps)!r}, 'a').write(f'{{time.monotonic()}}\\n')\n"
    )
    async with kept(part(code), tmp_path):
        await until(lambda: stamps.exists() and len(stamps.read_text().split()) >= 4, 15)
    ends = [float(one) for one in stamps.read_text().split()[:4]]
    assert all(0.9 <= after - before < 1.6 for before, after in pairwise(ends))


async def test_a_part_that_refuses_to_start_is_shown_with_its_last_words(tmp_path: Path) -> None:
    code = 'print(\'{"at": "x", "event": "refused", "detail": "no dsn, password=hush"}\'); exit(2)'
    async with kept(part(code), tmp_path) as runner:
        await until(lambda: runner.state.phase == "refused", 5)
        assert runner.state.last_line == "refused detail=no dsn, password=***"


async def test_a_part_that_may_end_is_done_when_it_returns_0(tmp_path: Path) -> None:
    async with kept(part("print('bye')", ends=True), tmp_path) as runner:
        await until(runner.over.is_set, 5)
        assert (runner.state.phase, runner.state.restarts) == ("done", 0)


async def test_a_part_that_may_end_is_started_again_when_it_fails(tmp_path: Path) -> None:
    async with kept(part("exit(1)", ends=True), tmp_path) as runner:
        await until(lambda: runner.state.restarts >= 1, 5)


async def test_a_part_that_should_not_end_is_started_again_even_after_0(tmp_path: Path) -> None:
    async with kept(part("exit(0)"), tmp_path) as runner:
        await until(lambda: runner.state.restarts >= 1, 5)


async def test_a_part_that_does_not_listen_to_sigterm_is_killed_in_time(tmp_path: Path) -> None:
    async with kept(part(STUBBORN), tmp_path) as runner:
        log = tmp_path / "part.log"
        await until(lambda: log.exists() and "up" in log.read_text(), 5)
        pid = runner.state.pid
        assert pid is not None
        mark = fingerprint(pid)
        began = asyncio.get_running_loop().time()
        await runner.end(0.3)
        assert asyncio.get_running_loop().time() - began < 1.5
        assert not is_same(pid, mark)
        assert runner.state.phase == "stopped"


async def test_what_a_part_has_started_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    log = tmp_path / "part.log"
    async with kept(part(code), tmp_path) as runner:
        await until(lambda: log.exists() and "up" in log.read_text(), 5)
        child = int(log.read_text().split()[0])
        mark = fingerprint(child)
        assert mark
        assert runner.state.pid is not None
        os.kill(runner.state.pid, signal.SIGKILL)
        await until(lambda: not is_same(child, mark), 5)


async def test_a_part_that_listens_is_ready_once_it_accepts(tmp_path: Path) -> None:
    (port,) = choose_ports(["part"]).values()
    gate = tmp_path / "gate"
    code = (
        "import pathlib, socket, time\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)\n"
        f"listener = socket.create_server(('127.0.0.1', {port}))\n"
        "while True: listener.accept()[0].close()\n"
    )
    async with kept(part(code, port=port), tmp_path) as runner:
        await until(lambda: runner.state.phase == "starting", 5)
        assert not runner.ready.is_set()
        gate.touch()
        await until(runner.ready.is_set, 5)
        assert runner.state.address == f"http://127.0.0.1:{port}"
    assert is_closed(port)


async def test_a_cancelled_supervisor_leaves_no_part(tmp_path: Path) -> None:
    runner = PartRunner(part(STUBBORN), tmp_path / "part.log", SystemClock())
    task = asyncio.create_task(runner.run())
    await until(lambda: runner.state.pid is not None, 5)
    pid, mark = runner.state.pid, runner.state.fingerprint
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_same(pid, mark)


async def test_a_process_that_only_has_the_pid_of_a_recorded_one_is_left_alone() -> None:
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEP)
    try:
        assert await end_recorded([(other.pid, "another boot:1")], SystemClock(), 0.2) == []
        assert other.returncode is None
        assert fingerprint(other.pid)
    finally:
        other.kill()
        await other.wait()


async def test_a_frozen_process_that_was_recorded_is_ended() -> None:
    frozen = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUBBORN, start_new_session=True, stdout=asyncio.subprocess.PIPE
    )
    assert frozen.stdout is not None
    await frozen.stdout.readline()
    os.kill(frozen.pid, signal.SIGSTOP)
    recorded = (frozen.pid, fingerprint(frozen.pid))
    assert await end_recorded([recorded], SystemClock(), 0.3) == [frozen.pid]
    assert await frozen.wait() == -signal.SIGKILL


async def test_a_part_is_not_ready_because_somebody_else_answers_on_its_port(
    tmp_path: Path,
) -> None:
    (port,) = choose_ports(["part"]).values()
    tried = tmp_path / "tried"
    code = (
        "import pathlib, socket, time\n"
        f"try: socket.create_server(('127.0.0.1', {port}))\n"
        f"except OSError: pathlib.Path({str(tried)!r}).touch()\n"
        "time.sleep(600)\n"
    )
    with socket.create_server(("127.0.0.1", port)):
        async with kept(part(code, port=port), tmp_path) as runner:
            await until(tried.exists, 5)
            await asyncio.sleep(3 * runner_module.PROBE_SECONDS)  # it has been looked at since
            assert not runner.ready.is_set()
            assert runner.state.phase == "starting"
