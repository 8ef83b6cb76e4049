"""Every code block of the README and of the quickstart does what the page says."""

import re
from pathlib import Path

import pytest

from .pages import Reader
from .support import ROOT, Installed


@pytest.fixture
def reader(installed: Installed, tmp_path: Path) -> Reader:
    def prepare(command: list[str]) -> None:
        """Check what `make install-smoke` does in full."""
        if command[0] == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(command[1:]) <= set(targets)
        elif command[0] == "pip":
            (metadata,) = installed.site.glob("odin_workflows-*.dist-info/METADATA")
            extras = set(re.findall(r"^Provides-Extra: (\w+)$", metadata.read_text(), re.MULTILINE))
            given = re.fullmatch(r"odin-workflows(?:\[([\w,]+)\])?", command[-1])
            assert given is not None
            assert set((given[1] or "server").split(",")) <= extras
        else:
            assert command[:4] == ["python3", "-m", "venv", ".venv"]

    return Reader(installed, tmp_path, prepare)


def test_the_readme_does_what_it_says(reader: Reader) -> None:
    reader.follow("README.md")
    result = reader.outputs["odin run Order --input 4200 --wait"]
    assert result.startswith('"charged 4200, key Order-')


def test_the_quickstart_does_what_it_says(reader: Reader) -> None:
    reader.follow("docs/quickstart.md")
    assert reader.outputs["python buy.py"].startswith("charged 4200, key order-1/")
    assert any("workflow_execution_completed" in text for text in reader.outputs.values())
