"""What `odin dev` is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What to run, and where.

    Attributes:
        targets: The author's modules, `module` or `module:object`.
        root: The author's folder: modules are looked for there first.
        port: Where the engine listens; None: the usual port, or a free one.
        fresh: Whether what was kept of earlier runs is deleted.
        reload: Whether the code is loaded anew when a file changes.
        folder: Data is kept in `dev` below it; None: ODIN_FOLDER, else `.odin`.
        namespace: Whose workflows the worker runs.
        token: What clients must present; None: nothing.
    """

    targets: tuple[str, ...]
    root: Path
    port: int | None = None
    fresh: bool = False
    reload: bool = True
    folder: Path | None = None
    namespace: str = "default"
    token: str | None = field(default=None, repr=False)
