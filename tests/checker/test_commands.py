"""`odin check` and `python -m checker` as processes: what they print, and their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import asyncpg
import pytest

from checker.commands import instant_us
from checker.showing import show
from checker.verdicts import Report, complete
from odin.errors import InvalidArgumentError
from odin.runtime.services import checkout
from tests.checker.real_run import run_on
from tests.checker.spoiled import SPOILED

HOUR_US = 3_600_000_000


async def run(dsn: str, *arguments: str) -> tuple[int, str, str]:
    environ = {**os.environ, "ODIN_POSTGRES_DSN": dsn, "ODIN_CHECK_REPLAY_COUNT": "5"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, cwd=checkout(), env=environ, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(30):
        told, errors = await process.communicate()
    return process.returncode or 0, told.decode(), errors.decode()


async def results(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await connection.fetch("SELECT verdict FROM check_result")]
    finally:
        await connection.close()


async def test_odin_check_tells_each_verdict_by_its_exit_code_and_keeps_it(rows: str) -> None:
    code, told, errors = await run(rows, "odin.cli", "check", "--since", "1h")
    assert (code, errors.splitlines()[-1].split(":")[0]) == (0, "valid")
    lines = dict(line.split("\t", 1) for line in told.splitlines())
    assert lines["I10"].startswith("valid\tcharged at most once\tjudged=")
    assert lines["I17"].startswith("(unknown)")

    _, statement, _ = SPOILED["a double charge"]
    await run_on(rows, statement)
    code, told, _ = await run(rows, "odin.cli", "check", "--replay", "0", "--json")
    shown = json.loads(told)
    assert (code, shown["verdict"], len(shown["findings"])) == (1, "invalid", 24)
    assert next(one["verdict"] for one in shown["findings"] if one["invariant"] == "I10") == (
        "invalid"
    )
    assert await results(rows) == ["valid", "invalid"]


async def test_a_database_that_does_not_answer_is_unknown_and_never_valid() -> None:
    code, _, errors = await run("postgresql://nobody@127.0.0.1:1/none", "odin.cli", "check")
    assert code == 3
    assert "Postgres could not be read" in errors


def cluster_files(folder: Path, dsn: str) -> None:
    """Write what a cluster that runs leaves in its folder; this process stands for it."""
    state = {"pid": os.getpid(), "phase": "running", "engines": ["http://127.0.0.1:1"]}
    folder.mkdir()
    (folder / "cluster.json").write_text(json.dumps(state), encoding="utf-8")
    secrets = folder / "cluster.secrets.json"
    secrets.write_text(json.dumps({"postgres_dsn": dsn}), encoding="utf-8")


async def test_a_folder_counts_for_more_than_the_environment(rows: str, tmp_path: Path) -> None:
    cluster_files(tmp_path / "here", rows)
    named = ("odin.cli", "check", "--replay", "0", "--json", "--folder", str(tmp_path / "here"))
    code, told, errors = await run("postgresql://nobody@127.0.0.1:1/none", *named)
    assert (code, json.loads(told)["verdict"]) == (3, "unknown"), errors  # I18 is not asked for
    assert await results(rows) == ["unknown"]


async def test_a_folder_without_a_cluster_is_an_error_and_no_other_database_is_read(
    rows: str, tmp_path: Path
) -> None:
    code, told, errors = await run(rows, "odin.cli", "check", "--folder", str(tmp_path / "gone"))
    assert (code, told) == (4, "")
    assert f"no cluster runs in {tmp_path / 'gone'}" in errors
    assert await results(rows) == []

    cluster_files(tmp_path / "empty", "")
    code, _, errors = await run(rows, "odin.cli", "check", "--folder", str(tmp_path / "empty"))
    assert (code, "NO_CLUSTER" in errors) == (4, True)
    assert await results(rows) == []


async def test_the_self_test_of_the_process_sees_every_mutation(real_rows: str) -> None:
    code, told, errors = await run(real_rows, "checker", "--self-test")

    outcomes = [line.split("\t")[2] for line in told.splitlines()[1:]]
    assert (code, set(outcomes), errors) == (0, {"seen"}, "")
    assert len(outcomes) > 60


async def test_it_passes_again_and_again_until_told_to_stop(rows: str) -> None:
    environ = {**os.environ, "ODIN_POSTGRES_DSN": rows, "ODIN_CHECK_REPLAY_COUNT": "0"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "checker", "--every", "0.1"),
        cwd=checkout(),
        env=environ,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(20):
            while len(await results(rows)) < 2:
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            told, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    assert b'"verdict":"unknown"' in (told + errors).replace(b'": "', b'":"')


def test_what_is_not_proven_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(
        since_us=0,
        until_us=HOUR_US,
        experiment=None,
        verdict="unknown",
        seconds=0.1,
        findings=complete([]),
    )
    assert [show(report, as_json=as_json) for as_json in (False, True)] == [3, 3]
    assert '"until":"1970-01-01T01:00:00Z"' in capsys.readouterr().out


def test_an_instant_is_an_instant_or_how_long_ago_it_was() -> None:
    assert instant_us("1h", 5 * HOUR_US, "--since") == 4 * HOUR_US
    assert instant_us("1970-01-01T01:00:00Z", 0, "--since") == HOUR_US
    for wrong in ("yesterday", "1970-01-01T01:00:00"):
        with pytest.raises(InvalidArgumentError, match="--since"):
            instant_us(wrong, 0, "--since")
