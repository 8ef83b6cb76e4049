"""The wheel, built once, and an environment that has it."""

from pathlib import Path

import pytest

from .support import Installed, build, install_without_dependencies


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_without_dependencies(wheel, tmp_path_factory.mktemp("env") / "venv")
