"""Named queries from the .sql files of a package: no SQL is put together in Python.

A file holds blocks of the form

    -- name: lock_shard
    -- Why this statement is as it is.
    SELECT ...;

A name holds for the whole package; the comment travels with the statement, so that it can be read
in `pg_stat_activity` too.
"""

from __future__ import annotations

import re
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"^--\s*name:\s*([A-Za-z_][A-Za-z0-9_]*)\s*$", re.MULTILINE)


def load_queries(package: str) -> Mapping[str, str]:
    """Return every named query in the .sql files that lie directly in `package`.

    Args:
        package: Dotted name of an importable package, usually the caller's `__package__`.

    Raises:
        ValueError: two queries share a name, a block is empty, or text stands before the first
            name (it would belong to no query and be lost).
    """
    queries: dict[str, str] = {}
    for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".sql"):
            continue
        for name, text in parse_queries(entry.read_text(encoding="utf-8"), entry.name):
            if name in queries:
                raise ValueError(f"query {name!r} is defined twice in {package} ({entry.name})")
            queries[name] = text
    return MappingProxyType(queries)


def parse_queries(text: str, source: str) -> list[tuple[str, str]]:
    """Return (name, statement) for each block of one file, in order.

    Raises:
        ValueError: as for `load_queries`; `source` names the file in the message.
    """
    preamble, *parts = _NAME.split(text)
    if _statement_of(preamble):
        raise ValueError(f"{source}: a statement stands before the first '-- name:' line")
    blocks = list(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
    for name, block in blocks:
        if not _statement_of(block):
            raise ValueError(f"{source}: query {name!r} has no statement")
    return blocks


def _statement_of(block: str) -> str:
    """Return the block without its whole-line comments."""
    lines = (line for line in block.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip()
