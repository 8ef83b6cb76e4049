"""What the wheel puts where, that its services start, and `odin worker` and `odin up` from it."""

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from .support import ROOT, Installed, Running, build

WORKFLOWS = """
from odin import activity, workflow
from odin.worker import Worker


@activity.defn
async def double(n: int) -> int:
    return 2 * n


@workflow.defn
async def twice(n: int) -> int:
    return await workflow.execute_activity(double, n)


app = Worker(
    "127.0.0.1:1", workflows=[twice], activities=[double], task_queue="sums", broker="embedded"
)
"""
SERVICES = [
    path.parent.name
    for path in sorted(ROOT.glob("*/__main__.py"))
    if path.parent.name not in {"odin", "tests"}
]


@pytest.fixture
def author(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(WORKFLOWS)
    return tmp_path


def test_nothing_but_odin_is_installed_at_top_level(installed: Installed) -> None:
    names = {path.name for path in installed.site.iterdir()} - {"borrowed.pth", "__pycache__"}
    assert {name for name in names if not name.endswith(".dist-info")} == {"odin"}


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_starts_from_the_wheel(
    installed: Installed, tmp_path: Path, service: str
) -> None:
    command = (str(installed.python), "-P", "-m", f"odin.services.{service}", "--help")
    ended = installed.run(*command, cwd=tmp_path)
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    # Those without options say which settings they lack.
    assert (ended.returncode == 0 and "sage" in said) or (
        ended.returncode == 2 and ("is not set" in said or "sage" in said)
    ), said


def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build("wheel", tmp_path / "wheel", source)
    assert _content(again) == _content(wheel)


def _content(wheel: Path) -> dict[str, int]:
    """Name to checksum of what is in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


def test_a_worker_takes_the_options_of_the_object_that_it_hosts(
    installed: Installed, author: Path
) -> None:
    with Running(installed, author, "dev") as dev:
        dev.says("is ready")
        with Running(installed, author, "worker", "sums:app") as worker:
            worker.says("of task queue sums (embedded broker)", dev.address, "linked to engine")
            assert installed.result("twice", "--input", "4", "--queue", "sums", cwd=author) == 8
            worker.end()
            assert worker.process.returncode == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("summs", "no module 'summs': looked for summs.py"),
        ("summs", "did you mean 'sums'?"),
        ("sums:ap", "there is no 'ap' in it; did you mean 'app'?"),
        ("empty", "has no workflow and no activity"),
        ("twin", "two workflow definitions have the name 'twice'"),
        (
            "broken",
            'broken.py:1: ModuleNotFoundError: No module named "not_there"'.replace('"', "'"),
        ),
        ("queue", "is hidden by another module of that name"),
    ],
)
def test_a_worker_says_what_is_wrong_with_a_module(
    installed: Installed, author: Path, target: str, said: str
) -> None:
    (author / "empty.py").write_text("x = 1\n")
    (author / "twin.py").write_text(
        "from odin import workflow\nfrom sums import twice\n\n\n"
        "@workflow.defn(name='twice')\nasync def other() -> None:\n    return None\n"
    )
    (author / "broken.py").write_text("import not_there\n")
    (author / "queue.py").write_text("")
    ended = installed.odin("worker", target, "--broker", "embedded", cwd=author)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert said in ended.stderr


def test_a_worker_without_a_cluster_says_that_none_answers(
    installed: Installed, author: Path
) -> None:
    ended = installed.odin("worker", "sums", "--address", "127.0.0.1:1", cwd=author)
    assert ended.returncode == 3
    assert "no engine could be reached" in ended.stderr


def test_a_local_cluster_of_the_wheel_runs_an_own_workflow(
    installed: Installed, author: Path
) -> None:
    options = ("--engines", "1", "--workers", "0", "--no-mocks")
    with Running(installed, author, "up", *options, ODIN_BROKER="embedded") as cluster:
        cluster.until(lambda: _phase(author) == "running", 40, "running cluster")
        assert installed.odin("ps", cwd=author).returncode == 0
        with Running(installed, author, "worker", "sums") as worker:
            worker.says("linked to engine")
            assert installed.result("twice", "--input", "21", cwd=author) == 42


def _phase(author: Path) -> str:
    state = author / ".odin" / "cluster.json"
    return json.loads(state.read_text())["phase"] if state.exists() else ""
