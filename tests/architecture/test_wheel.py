"""The built wheel: one top-level module, and services that work where the wheel puts them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from odin.services import NAMES, module_name, schema_folder

from .tree import ROOT, tracked

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import odin.services
assert odin.services.__file__.startswith(sys.argv[1]), odin.services.__file__
names = [module.name for module in pkgutil.walk_packages(odin.services.__path__, "odin.services.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
top = set(odin.services.NAMES) & set(sys.modules)
assert not top, f"absolute imports inside services: {sorted(top)}"
for name in odin.services.NAMES:
    if f"odin.services.{name}" in names:
        assert odin.services.module_name(name) == f"odin.services.{name}"
assert str(odin.services.schema_folder()).startswith(sys.argv[1]) or not sys.argv[2]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=50)
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_puts_no_module_but_odin_into_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"odin"}


def test_every_module_of_every_service_imports_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    migrations = {path.name for path in tracked() if path.parts[0] == "schema"}
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _IMPORT_ALL, str(tmp_path), "yes" if migrations else ""],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    shipped = {path.name for path in (tmp_path / "odin/services/schema").glob("*.sql")}
    assert shipped >= {name for name in migrations if name.endswith(".sql")}


def test_a_source_tree_finds_services_and_migrations_beside_odin() -> None:
    assert module_name("engine", "main") == "engine.main"
    assert schema_folder() == ROOT / "schema"
    with pytest.raises(ValueError, match="no service 'nothing'"):
        module_name("nothing")


def test_every_service_that_moves_in_the_wheel_is_known_by_name() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [name for name in NAMES if f'"{name}" = "odin/services/{name}"' not in text] == []
