import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from bench.commands import run
from bench.local import own_folder
from bench.options import Options
from bench.results import Report
from bench.workloads import chosen
from odin.errors import FailedPreconditionError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environ(dsn: str, rabbitmq_url: str, valkey_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "ODIN_POSTGRES_DSN": dsn,
        "ODIN_AMQP_URL": rabbitmq_url,
        "ODIN_VALKEY_URL": valkey_url,
        "ODIN_FOLDER": str(tmp_path / "odin"),
    }


async def test_a_small_run_is_right_to_the_last_event(
    environ: dict[str, str], tmp_path: Path
) -> None:
    told: list[str] = []
    report = await run(Options(chosen(["W1"], 20), rounds=2), environ, told.append)

    assert report.is_correct
    assert [one.round for one in report.measurements] == [1, 2]
    for one in report.measurements:
        assert (one.workflows, one.wrong, one.failed, one.problems) == (20, 0, 0, [])
        assert one.latency is not None
        assert 0 < one.latency.p50_ms <= one.wall_seconds * 1_000
        assert one.database is not None
        assert one.database.events == 20 * (3 + 3 * 5)  # start, first task, close; 3 a step
        assert 0 < one.database.groups <= one.database.write_transactions
        assert one.engine is not None
        assert one.engine.messages
        assert one.cpu_seconds is not None
        assert one.cpu_seconds["engine"] > 0
        assert one.cpu_seconds["worker"] > 0
        assert "postgres" not in one.cpu_seconds
        assert one.unmeasured == ("postgres", "valkey", "rabbitmq")
        assert one.per_1000() is None
    assert report.setup.durability["fsync"] == "on"
    assert report.setup.versions["rabbitmq"][0].isdecimal()
    assert list((tmp_path / "odin").iterdir()) == []
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


async def test_parallel_steps_and_the_embedded_broker_are_right(environ: dict[str, str]) -> None:
    options = Options(chosen(["W3"], 2), broker="embedded", engines=2, workers=2)
    report = await run(options, environ, lambda _: None)

    assert report.is_correct
    assert report.setup.broker == "embedded"
    (one,) = report.measurements
    assert one.unmeasured == ("postgres", "valkey")


async def test_a_database_with_living_engines_is_left_alone(environ: dict[str, str]) -> None:
    is_measuring = asyncio.Event()

    def tell(line: str) -> None:
        if line.startswith("round"):
            is_measuring.set()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(run(Options(chosen(["W1"], 20)), environ, tell))
        await is_measuring.wait()
        with pytest.raises(FailedPreconditionError, match="--address"):
            await run(Options(chosen(["W1"], 1)), environ, lambda _: None)
    assert first.result().is_correct


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_everything_that_was_started(
    environ: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", "--workloads", "W1"),
        cwd=ROOT,
        env={**environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(50):
        while not (await process.stderr.readline()).startswith(b"round"):
            assert process.returncode is None
        below = _descendants(process.pid)
        process.send_signal(number)
        output, _ = await process.communicate()
    assert len(below) >= 4  # servers, engine, worker, load generator
    assert [pid for pid in below if _exists(pid)] == []
    assert (output, process.returncode) == (b"", code)
    assert list((tmp_path / "odin").iterdir()) == []


def test_what_a_killed_benchmark_left_is_removed_but_not_what_is_in_use(tmp_path: Path) -> None:
    left = tmp_path / "bench-left"
    left.mkdir()
    with own_folder(tmp_path) as first, own_folder(tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _descendants(root: int) -> list[int]:
    found = [root]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        found += [int(child) for child in children.split()]
    return found[1:]
