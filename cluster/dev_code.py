"""The author's modules: imported anew when a file has changed.

All modules below the author's folder are imported anew together, so that no half of them speaks to
the old other half. If that fails, the names stand for the old modules again.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from odin.cli.authored import authored_modules, load
from odin.core.definition import forget_signatures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odin.cli.authored import Found

Stamp: TypeAlias = tuple[int, int, int]


class AuthoredCode:
    """The modules that an author named, and what they import from the author's folder.

    Args:
        targets: `module` or `module:object` each.
        root: The author's folder.
    """

    def __init__(self, targets: Sequence[str], root: Path) -> None:
        self._targets = targets
        self._root = root
        self._stamps: dict[Path, Stamp | None] = {}
        # A compiled file knows its source's age in whole seconds: a second save would be missed.
        sys.dont_write_bytecode = True

    def load(self) -> Found:
        """Import everything anew and return what is decorated in it.

        Raises:
            InvalidArgumentError: As `odin.cli.authored.load`; the old modules are in place again.
        """
        old = authored_modules(self._root)
        for name in old:
            del sys.modules[name]
        importlib.invalidate_caches()
        forget_signatures()
        try:
            found = load(self._targets, self._root)
        except BaseException as error:
            for name in authored_modules(self._root):
                del sys.modules[name]
            sys.modules.update(old)
            self._watch([*_files_of(old.values()), *self._files_in(error)])
            raise
        self._watch(_files_of(authored_modules(self._root).values()))
        return found

    def changed(self) -> list[Path]:
        """Return the files that differ from when they were last loaded or reported here."""
        now = {path: _stamp(path) for path in self._stamps}
        # An editor that replaces a file lets it vanish for a moment: that is no change yet.
        found = [path for path, stamp in now.items() if stamp and stamp != self._stamps[path]]
        self._stamps.update({path: now[path] for path in found})
        return found

    def _watch(self, files: Iterable[Path]) -> None:
        # What was read before the import may be older than what was imported, never newer.
        self._stamps = {path: self._stamps.get(path) or _stamp(path) for path in files}

    def _files_in(self, error: BaseException) -> list[Path]:
        """Return the author's files that a failed import went through."""
        named: list[str] = []
        at: BaseException | None = error
        while at is not None:
            named += [frame.filename for frame in traceback.extract_tb(at.__traceback__)]
            if isinstance(at, SyntaxError) and at.filename:
                named.append(at.filename)
            at = at.__cause__
        names = [target.partition(":")[0].removesuffix(".py") for target in self._targets]
        for path in (self._root.joinpath(*name.replace("/", ".").split(".")) for name in names):
            named += [f"{path}.py", f"{path}/__init__.py"]
        files = [Path(name) for name in dict.fromkeys(named)]
        return [path for path in files if path.is_relative_to(self._root)]


def _files_of(modules: Iterable[object]) -> list[Path]:
    return [Path(str(getattr(module, "__file__", ""))) for module in modules]


def _stamp(path: Path) -> Stamp | None:
    """Return what tells one state of a file from another; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
