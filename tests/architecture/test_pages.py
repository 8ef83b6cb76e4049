"""What a page says is held by a test is the name of a test that there is."""

import re
from functools import cache
from pathlib import Path

import pytest

from chaos.scenarios import SCENARIOS

from .tree import functions, modules, text, tracked

PAGES = ("docs/guarantees.md", "docs/guards.md", "docs/reports.md")

_NAME = re.compile(r"`(test_\w+)`")
_FILE = re.compile(r"`(tests/[\w/]+(?:\.py)?)`")
_REPORT = re.compile(r"^\| (?P<project>[\w.-]+/[\w.-]+#\d+)[^|]*\|(?P<rest>.*)\|$", re.MULTILINE)

_PROMISE = re.compile(r"^\| [^|]+ \| [^|]+ \|(?P<experiments>[^|]*)\|[^|]+\|$", re.MULTILINE)


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of all test functions."""
    return frozenset(
        node.name
        for path in modules()
        if path.parts[0] == "tests" and path.name.startswith("test_")
        for node in functions(path)
        if node.name.startswith("test_")
    )


def missing(page: str) -> list[str]:
    """Return the tests, files and folders that the page names and that are not there."""
    there = {str(path) for path in tracked()} | {
        str(parent) for path in tracked() for parent in path.parents
    }
    return sorted(
        {name for name in _NAME.findall(page) if name not in names_of_tests()}
        | {name for name in _FILE.findall(page) if name not in there}
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    content = text(Path(page))
    assert _NAME.search(content) or _FILE.search(content), f"{page} names no test"
    assert missing(content) == []


def test_every_report_has_a_test_or_a_reason_why_not() -> None:
    rows = list(_REPORT.finditer(text(Path("docs/reports.md"))))
    assert rows, "the page lists no report"
    assert [
        row["project"]
        for row in rows
        if not _NAME.search(row["rest"]) and "cannot be tested now: " not in row["rest"]
    ] == []


def test_every_experiment_that_the_promises_name_is_planned() -> None:
    rows = _PROMISE.findall(text(Path("docs/guarantees.md")))
    named = {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}
    assert named, "no promise names an experiment"
    assert named - {one.name for one in SCENARIOS} == set()


def test_a_name_that_is_gone_is_missed() -> None:
    assert missing("`test_that_nobody_wrote`, `tests/nowhere.py`") == [
        "test_that_nobody_wrote",
        "tests/nowhere.py",
    ]
