"""The built wheel: one top-level module, and services that work where the wheel puts them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .tree import PACKAGES, ROOT, tracked

_SERVICES = [name for name in PACKAGES if name != "odin"]

_IMPORT_ALL = """
import importlib, pkgutil, sys
folder, *services = sys.argv[1:]
sys.path.insert(0, folder)
import odin.services
from odin.runtime.services import module_of
names = [module.name for module in pkgutil.walk_packages(odin.services.__path__, "odin.services.")]
for name in names:
    if not name.endswith("__main__"):
        assert importlib.import_module(name).__file__.startswith(folder), name
top = set(services) & set(sys.modules)
assert not top, f"absolute imports inside services: {sorted(top)}"
print(*(module_of(name) for name in services if f"odin.services.{name}" in names))
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
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _IMPORT_ALL, str(tmp_path), *_SERVICES],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    present = [name for name in _SERVICES if (ROOT / name / "__init__.py").is_file()]
    assert ended.stdout.split() == [f"odin.services.{name}" for name in present]


def test_the_wheel_carries_every_migration(wheel: Path) -> None:
    migrations = {str(path) for path in tracked() if path.match("schema/*.sql")}
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    assert {f"odin/services/{path}" for path in migrations} <= shipped


def test_every_service_that_moves_in_the_wheel_is_known_by_name() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [name for name in _SERVICES if f'"{name}" = "odin/services/{name}"' not in text] == []
