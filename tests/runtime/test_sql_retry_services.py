from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import odin
from odin.errors import ConfigurationError, InvalidArgumentError, UnavailableError
from odin.runtime import services
from odin.runtime.retry import for_infrastructure, until_stopped
from odin.runtime.sql import load_queries, parse_queries

TWO = """\
-- Locks, and the rest.

-- name: lock_shard
-- Why it is so.
SELECT 1
FOR SHARE;

-- name: count_all
SELECT count(*) -- name: not_a_name
FROM shard;
"""


def test_queries_are_found_by_name_with_their_reason() -> None:
    (first, text), (second, other) = parse_queries(TWO, "x.sql")
    assert (first, second) == ("lock_shard", "count_all")
    assert text == "-- Why it is so.\nSELECT 1\nFOR SHARE;"
    assert other.endswith("FROM shard;")


@pytest.mark.parametrize(
    "text", ["SELECT 1;\n-- name: x\nSELECT 2;", "-- name: x\n-- only words\n", "-- name: x\n"]
)
def test_a_statement_without_name_or_a_name_without_statement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"x\.sql"):
        parse_queries(text, "x.sql")


def test_a_name_holds_for_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "odin_test_queries"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.sql").write_text("-- name: one\nSELECT 1;")
    (package / "b.sql").write_text("-- name: two\nSELECT 2;")
    (package / "notes.txt").write_text("-- name: one\nSELECT 3;")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_queries("odin_test_queries") == {"one": "SELECT 1;", "two": "SELECT 2;"}
    (package / "b.sql").write_text("-- name: one\nSELECT 2;")
    with pytest.raises(ValueError, match="'one' is defined twice"):
        load_queries("odin_test_queries")


class Flaky:
    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionRefusedError("amqp://u:hunter2@h")
        return self.calls


async def test_an_expected_error_is_tried_again_until_it_succeeds() -> None:
    policy = for_infrastructure(OSError, give_up_after_seconds=5, longest_wait_seconds=0.01)
    assert await policy(Flaky(3)) == 4


async def test_trying_ends_with_the_deadline_and_the_last_error() -> None:
    policy = for_infrastructure(OSError, give_up_after_seconds=0.1, longest_wait_seconds=0.01)
    flaky = Flaky(10**9)
    with pytest.raises(ConnectionRefusedError):
        await policy(flaky)
    assert flaky.calls > 1


async def test_an_unexpected_error_is_not_tried_again() -> None:
    policy = for_infrastructure(TimeoutError, give_up_after_seconds=5)
    flaky = Flaky(1)
    with pytest.raises(ConnectionRefusedError):
        await policy(flaky)
    assert flaky.calls == 1


async def test_a_connect_loop_outlasts_an_outage_and_logs_it_sparingly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = asyncio.Event()
    got = await until_stopped("connect", Flaky(12), (OSError,), stop, longest_wait_seconds=0.001)
    assert got == 13
    assert len(caplog.records) == 2
    assert "hunter2" not in str([vars(record) for record in caplog.records])


async def test_a_connect_loop_ends_with_the_service() -> None:
    stop = asyncio.Event()

    async def attempt() -> None:
        stop.set()
        raise OSError

    with pytest.raises(UnavailableError, match="stopping"):
        await until_stopped("connect", attempt, (OSError,), stop, longest_wait_seconds=3_600)


def test_in_a_checkout_a_service_is_the_package_beside_odin() -> None:
    assert services.module_of("engine") == "engine"
    assert services.is_importable("engine")
    assert services.schema_folder() == services.checkout() / "schema"


def test_in_a_wheel_a_service_is_below_odin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "odin"
    (package / "services" / "engine").mkdir(parents=True)
    (package / "services" / "schema").mkdir()
    (tmp_path / "worker.py").touch()  # an author's own
    monkeypatch.setattr(odin, "__file__", str(package / "__init__.py"))
    assert services.module_of("engine") == "odin.services.engine"
    assert services.schema_folder() == package / "services" / "schema"
    with pytest.raises(ConfigurationError, match="no service 'worker'"):
        services.module_of("worker")


@pytest.mark.parametrize("name", ["", "../engine", "os.path", "a b"])
def test_what_is_no_name_is_no_service(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        services.module_of(name)


def test_a_module_in_the_current_directory_is_not_run_in_a_service_s_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "engine.py").write_text("print('the wrong one')")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("print('the wrong one')")
    command = services.command_of("engine")
    assert command[:3] == [sys.executable, "-P", "-m"]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", "import engine; print(engine.__file__)"],
        cwd=tmp_path,
        env=services.environment_of(dict(os.environ)),
        capture_output=True,
        check=True,
        text=True,
    )
    assert Path(ended.stdout.strip()).parent.parent == services.checkout()
