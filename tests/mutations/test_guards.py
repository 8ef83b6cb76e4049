"""The list of mutations fits the source: each text is there once, each test is there."""

import ast
from functools import cache
from pathlib import Path

import pytest

from .guards import MUTATIONS
from .mutation import ROOT, Mutation


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mutation_still_fits_the_source(mutation: Mutation) -> None:
    assert mutation.edits
    assert mutation.tests
    for edit in mutation.edits:
        assert edit.count(ROOT) == 1, f"{edit.file}: {edit.text!r}"
        assert edit.replacement != edit.text
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in names_in(ROOT / file), test


def test_every_guard_of_the_page_has_its_mutation_and_every_mutation_its_line() -> None:
    page = (ROOT / "docs/guards.md").read_text(encoding="utf-8")
    named = [one.name for one in MUTATIONS]
    assert len(set(named)) == len(named)
    assert [name for name in named if f"`{name}`" not in page] == []
