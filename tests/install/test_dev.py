"""`odin dev` from the wheel, in the folder of an author who has a worker.py and an engine/."""

import json
import signal
from pathlib import Path

import pytest

from .support import Installed, Running

END_SECONDS_MAX = 3.0
RELOAD_SECONDS = 15.0

ENGINE = """
from odin import activity


@activity.defn
async def price(item: str) -> int:
    return 7 * len(item)
"""
WORKER = """
import asyncio

from engine import price
from odin import workflow


@workflow.defn
async def quote(item: str) -> int:
    return await workflow.execute_activity(price, item)


@workflow.defn
async def patient(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"
"""


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """A folder with names that odin's own services have too."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text(ENGINE)
    (tmp_path / "worker.py").write_text(WORKER)
    return tmp_path


def test_workflows_of_an_own_worker_py_run_and_go_on_after_restart_and_kill(
    installed: Installed, author: Path
) -> None:
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready", "quote", "odin run quote --input")
        assert installed.result("quote", "--input", '"tea"', cwd=author) == 21
        started = installed.odin("run", "patient", "--input", "2", "--id", "p", cwd=author)
        assert started.returncode == 0, started.stderr
        assert dev.end() < END_SECONDS_MAX
        assert dev.process.returncode == 0
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready")
        ended = installed.odin("history", "p", "--follow", "--json", cwd=author)
        assert "workflow_execution_completed" in ended.stdout
        dev.end(signal.SIGKILL)
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready")
        assert installed.result("quote", "--input", '"tea"', cwd=author) == 21
        assert dev.end(signal.SIGTERM) < END_SECONDS_MAX
    with Running(installed, author, "dev", "worker", "--fresh") as dev:
        dev.says("is ready")
        assert json.loads(installed.odin("list", "--json", cwd=author).stdout) == []


def test_changed_code_takes_over_and_broken_code_does_not(
    installed: Installed, author: Path
) -> None:
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready")
        (author / "engine" / "__init__.py").write_text(ENGINE.replace("7 *", "8 *"))
        dev.says("__init__.py changed: now running", seconds=RELOAD_SECONDS)
        assert installed.result("quote", "--input", '"tea"', cwd=author) == 24

        (author / "worker.py").write_text(WORKER + "\nbroken = undefined_name\n")
        text = dev.says("the old code goes on", seconds=RELOAD_SECONDS)
        assert "worker.py:18: NameError: name 'undefined_name' is not defined" in text
        assert "broken = undefined_name" in text
        assert installed.result("quote", "--input", '"tea"', cwd=author) == 24
        assert dev.end() < END_SECONDS_MAX


def test_open_runs_that_cannot_go_on_with_changed_code_are_named(
    installed: Installed, author: Path
) -> None:
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready")
        installed.odin("run", "patient", "--input", "60", "--id", "waits", cwd=author)
        dev.until(
            lambda: "timer_started" in installed.odin("history", "waits", cwd=author).stdout,
            RELOAD_SECONDS,
            "timer",
        )
        changed = WORKER.replace("asyncio.sleep(seconds)", "asyncio.sleep(seconds + 1)")
        other = changed.replace(
            "    await asyncio.sleep", "    await quoted('tea')\n    await asyncio.sleep"
        )
        other += "\n\nasync def quoted(item: str) -> int:\n"
        other += "    return await workflow.execute_activity(price, item)\n"
        (author / "worker.py").write_text(other)
        text = dev.says("open run(s) cannot go on with this code", seconds=RELOAD_SECONDS)
        assert "waits (patient)" in text
        assert "the history has timer 1" in text


def test_a_failing_workflow_task_is_shown_once_with_its_line(
    installed: Installed, author: Path
) -> None:
    buggy = WORKER.replace('return "done"', 'return {}["nothing"]')
    (author / "worker.py").write_text(buggy)
    with Running(installed, author, "dev", "worker") as dev:
        dev.says("is ready")
        installed.odin("run", "patient", "--input", "0", "--id", "bug", cwd=author)
        text = dev.says("workflow task of bug (patient) fails", seconds=RELOAD_SECONDS)
        dev.until(lambda: _attempts(installed, author) >= 2, RELOAD_SECONDS, "second attempt")
        assert dev.text.count("workflow task of bug") == text.count("workflow task of bug") == 1
        assert 'worker.py:16: return {}["nothing"]' in dev.text
        (author / "worker.py").write_text(WORKER)
        ended = installed.odin("history", "bug", "--follow", "--json", cwd=author)
        assert "workflow_execution_completed" in ended.stdout


def _attempts(installed: Installed, author: Path) -> int:
    shown = json.loads(installed.odin("show", "bug", "--json", cwd=author).stdout)
    return int(shown["workflow_task"]["attempt"])


STUBBORN = """
import time

from odin import activity, workflow


@activity.defn
async def block_the_loop() -> None:
    time.sleep(60)


@activity.defn
def spin() -> None:
    while True:
        pass


@workflow.defn
async def hang() -> None:
    spinning = workflow.start_activity(spin)
    await workflow.execute_activity(block_the_loop)
    await spinning
"""


def test_code_that_never_yields_stops_neither_the_engine_nor_the_end(
    installed: Installed, author: Path
) -> None:
    (author / "stubborn.py").write_text(STUBBORN)
    with Running(installed, author, "dev", "stubborn") as dev:
        dev.says("is ready")
        installed.odin("run", "hang", "--id", "h", cwd=author)
        dev.says("the event loop is held up", "time.sleep(60)", seconds=RELOAD_SECONDS)
        shown = json.loads(installed.odin("show", "h", "--json", cwd=author).stdout)
        assert {one["state"] for one in shown["pending_activities"]} == {"started"}
        assert dev.end() < END_SECONDS_MAX, dev.text
        assert dev.process.returncode == 0


def test_an_import_that_never_ends_is_named_and_can_be_ended(
    installed: Installed, author: Path
) -> None:
    (author / "slow.py").write_text("import time\n\ntime.sleep(60)\n")
    with Running(installed, author, "dev", "slow") as dev:
        dev.says("still importing slow", seconds=20)
        assert dev.end() < END_SECONDS_MAX


def test_without_a_module_it_names_those_that_seem_to_hold_workflows(
    installed: Installed, author: Path
) -> None:
    with Running(installed, author, "dev") as dev:
        dev.says("is ready")
        assert "odin dev worker" in dev.text
        second = installed.odin("dev", "worker", cwd=author)
        assert second.returncode == 4
        assert "runs with the data in" in second.stderr


def test_a_module_that_is_not_there_ends_it_at_once(installed: Installed, author: Path) -> None:
    ended = installed.odin("dev", "wroker", cwd=author)
    assert ended.returncode == 2
    assert "did you mean 'worker'?" in ended.stderr
