"""The files of the project, as the architecture tests read them."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = (
    "odin",
    "engine",
    "relay",
    "worker",
    "mocks",
    "chaos",
    "checker",
    "cluster",
    "dashboard",
    "bench",
)

_BINARY = {".png", ".jpg", ".ico", ".woff", ".woff2", ".svg", ".gz", ".whl", ".webp"}


@cache
def tracked() -> tuple[Path, ...]:
    """Return every file under version control that is still there, relative to the root."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file())


@cache
def text(path: Path) -> str:
    """Return the content of a file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module of the project."""
    return ast.parse(text(path), filename=str(path))


def texts() -> list[Path]:
    """Return every tracked file that a person reads."""
    return [path for path in tracked() if path.suffix not in _BINARY]


def modules(*, shipped_only: bool = False) -> list[Path]:
    """Return every tracked Python module, or those alone that go into the wheel."""
    found = [path for path in tracked() if path.suffix == ".py"]
    return [path for path in found if path.parts[0] in PACKAGES] if shipped_only else found


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a module, the nested ones too."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
