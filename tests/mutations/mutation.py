"""What a mutation is: a guard taken out of the source, and the tests that must notice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "@commit"
"""Stands for the migration that defines the function by which groups are committed now."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of one file, and what stands in its place without the guard.

    `text` must occur exactly once.
    """

    file: str
    text: str
    replacement: str

    def path(self, root: Path) -> Path:
        """Return the file below `root`."""
        if self.file != COMMIT:
            return root / self.file
        called = re.search(r"FROM (\w+)\(", (root / "engine/store/commit.sql").read_text())
        assert called is not None, "commit.sql calls no function"
        head = f"CREATE FUNCTION {called[1]}("
        [found] = [one for one in (root / "schema").glob("0*.sql") if head in one.read_text()]
        return found

    def count(self, root: Path) -> int:
        """Return how often the text occurs."""
        return self.path(root).read_text(encoding="utf-8").count(self.text)

    def apply(self, root: Path) -> None:
        """Take the guard out.

        Raises:
            ValueError: The text does not occur exactly once.
        """
        path = self.path(root)
        found = path.read_text(encoding="utf-8")
        if found.count(self.text) != 1:
            raise ValueError(f"{path}: the text occurs {found.count(self.text)} times")
        path.write_text(found.replace(self.text, self.replacement), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A guard that is off.

    Attributes:
        name: As docs/guards.md names it.
        edits: What takes it out; more than one where each alone changes nothing.
        tests: Every one of them must fail. A test with parameters is named without them: then one
            of its cases must fail.
    """

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
