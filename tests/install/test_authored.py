"""Finding an author's definitions, a running cluster, and arguments to try, without a server."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.dev_code import AuthoredCode
from cluster.dev_samples import sample, sample_command
from odin import workflow
from odin.cli.authored import ModuleFailedError, ModuleMissingError, authored_modules, load
from odin.cli.nearby import nearby
from odin.core.definition import DefinitionError

MODULE = """
from dataclasses import dataclass
from odin import activity, workflow

@dataclass
class Cart:
    cents: int

class Shop:
    @activity.defn
    async def charge(self, cart: Cart) -> int:
        return cart.cents

@activity.defn
async def ship(item: str) -> None: ...

@workflow.defn
async def order(cart: Cart) -> None: ...

shop = Shop()
some = [order, ship]
wrong = [order, 3]
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    path = list(sys.path)
    writes = sys.dont_write_bytecode
    yield tmp_path
    for name in authored_modules(tmp_path):
        del sys.modules[name]
    sys.path[:] = path
    sys.dont_write_bytecode = writes


@pytest.mark.parametrize(
    ("target", "workflows", "activities"),
    [
        ("found_a", ["order"], ["charge", "ship"]),
        ("found_a:order", ["order"], []),
        ("found_a:shop", [], ["charge"]),
        ("found_a:some", ["order"], ["ship"]),
        ("found_a.py", ["order"], ["charge", "ship"]),
        ("./found_a.py:some", ["order"], ["ship"]),
    ],
)
def test_a_target_stands_for_what_is_decorated_in_it(
    root: Path, target: str, workflows: list[str], activities: list[str]
) -> None:
    (root / "found_a.py").write_text(MODULE)
    found = load([target], root)
    assert (found.workflow_names(), found.activity_names()) == (workflows, activities)


def test_what_two_targets_share_is_hosted_once(root: Path) -> None:
    (root / "found_b.py").write_text(MODULE)
    (root / "found_c.py").write_text("from found_b import *\n")
    found = load(["found_b", "found_c", "found_b:shop"], root)
    assert (found.workflow_names(), found.activity_names()) == (["order"], ["charge", "ship"])


def test_what_a_worker_would_refuse_is_refused_when_it_is_loaded(root: Path) -> None:
    (root / "found_i.py").write_text(
        "from odin import activity\n\n@activity.defn\ndef f(*, x: int) -> None: ...\n"
    )
    with pytest.raises(DefinitionError, match="keyword-only"):
        load(["found_i"], root)


def test_an_element_that_is_no_definition_is_named(root: Path) -> None:
    (root / "found_d.py").write_text(MODULE)
    with pytest.raises(DefinitionError, match=r"found_d:wrong\[1\] is 3"):
        load(["found_d:wrong"], root)


def test_a_file_outside_of_the_folder_is_refused(root: Path) -> None:
    with pytest.raises(ModuleMissingError, match="lies outside"):
        load(["../x.py"], root)


async def test_a_script_that_runs_when_it_is_imported_is_told_how_not_to(root: Path) -> None:
    (root / "found_e.py").write_text("import asyncio\nasyncio.run(asyncio.sleep(0))\n")
    with (
        pytest.warns(RuntimeWarning, match="never awaited"),
        pytest.raises(ModuleFailedError, match="if __name__ == '__main__'"),
    ):
        load(["found_e"], root)


def test_new_code_takes_new_types_although_its_functions_are_the_same(root: Path) -> None:
    file = root / "found_f.py"
    file.write_text(MODULE)
    code = AuthoredCode(["found_f"], root)
    first = code.load()
    assert sample_command(first.workflows[0]) == """odin run order --input '{"cents":1}' --wait"""
    assert code.changed() == []
    file.write_text(MODULE.replace("cents: int", "euros: int"))
    assert code.changed() == [file]
    assert code.changed() == []
    assert "euros" in sample_command(code.load().workflows[0])


def test_a_failed_import_leaves_the_old_modules_and_watches_the_broken_file(root: Path) -> None:
    file, helper = root / "found_g.py", root / "found_h.py"
    file.write_text("from found_h import *\n")
    helper.write_text(MODULE)
    code = AuthoredCode(["found_g"], root)
    code.load()
    before = authored_modules(root)
    helper.write_text("1 / 0\n")
    with pytest.raises(ModuleFailedError, match=r"found_h.py:1: ZeroDivisionError"):
        code.load()
    assert authored_modules(root) == before
    code.changed()
    helper.write_text(MODULE)
    assert code.changed() == [helper]


@pytest.mark.parametrize("name", ["found_j.py", "found_k.py"])
def test_what_fails_at_the_first_import_is_watched_too(root: Path, name: str) -> None:
    (root / "found_j.py").write_text("from found_k import *\n")
    (root / "found_k.py").write_text(MODULE)
    (root / name).write_text("def broken(:\n")
    code = AuthoredCode(["found_j"], root)
    with pytest.raises(ModuleFailedError, match=f"{name}:1: SyntaxError"):
        code.load()
    assert code.changed() == []
    (root / name).write_text(MODULE)
    assert code.changed() == [root / name]


@dataclass
class Address:
    street: str
    floor: int = 0


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (int, 1),
        (str | None, "text"),
        (list[Address], [{"street": "text"}]),
        (dict[str, int], {}),
        (object, None),
    ],
)
def test_a_sample_fits_the_type(type_: object, value: object) -> None:
    assert sample(type_) == value


def test_a_sample_command_quotes_for_the_shell() -> None:
    @workflow.defn
    async def greet(name: str, times: int = 1) -> None: ...

    assert sample_command(greet) == """odin run greet --input '"text"' --wait"""
    assert sample_command(greet, "slow").endswith(" --queue slow --wait")


def _state(folder: Path, started: str, port: int, *, pid: int | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "pid": os.getpid() if pid is None else pid,
        "phase": "running",
        "started_at": started,
        "engines": [f"http://127.0.0.1:{port}"],
    }
    (folder / "cluster.json").write_text(json.dumps(state))


def test_the_cluster_of_the_nearest_folder_is_found_and_of_two_the_newer_one(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert nearby(inner, {}) is None
    _state(tmp_path / ".odin", "2026-01-01T00:00:00", 1)
    _state(tmp_path / ".odin" / "dev", "2026-01-02T00:00:00", 2)
    found = nearby(inner, {})
    assert found is not None
    assert found.address == "http://127.0.0.1:2"
    _state(tmp_path / "a" / ".odin", "2025-01-01T00:00:00", 3)
    assert getattr(nearby(inner, {}), "address", "") == "http://127.0.0.1:3"
    named = {"ODIN_FOLDER": str(tmp_path / ".odin")}
    assert getattr(nearby(inner, named), "address", "") == "http://127.0.0.1:2"


def test_a_cluster_whose_process_is_gone_is_not_found(tmp_path: Path) -> None:
    _state(tmp_path / ".odin", "2026-01-01T00:00:00", 1, pid=2**22 + 1)
    assert nearby(tmp_path, {}) is None
