"""What importing odin brings along, in a process of its own."""

import subprocess
import sys

import pytest

from .tree import ROOT

_AUTHORS_MODULES = ("odin", "odin.errors", "odin.workflow", "odin.activity")
_HEAVY = ("aio_pika", "aiohttp", "asyncpg", "fastapi", "pydantic", "uvicorn", "valkey")
_PROGRAM = """
import sys
__import__(sys.argv[1])
print(*sorted(name for name in sys.argv[2].split(",") if name in sys.modules))
"""


def _exists(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize("module", [name for name in _AUTHORS_MODULES if _exists(name)])
def test_writing_a_workflow_imports_no_server_library(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, module, ",".join(_HEAVY)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == ("", "", 0)
