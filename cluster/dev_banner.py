"""What `odin dev` says once everything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.core.ids import DEFAULT_TASK_QUEUE

from .dev_console import listed
from .dev_samples import sample_command

if TYPE_CHECKING:
    from pathlib import Path

    from odin.cli.authored import Found

    from .dev_console import Console
    from .dev_options import DevOptions
    from .place import Place

SAMPLES_MAX: Final = 5
_MARKS: Final = ("workflow.defn", "activity.defn")
_READ_BYTES_MAX: Final = 200_000


def banner(
    console: Console,
    options: DevOptions,
    found: Found | None,
    address: str,
    took_seconds: float,
    place: Place,
) -> None:
    """Say where it listens, what it hosts and how to start that."""
    console.line(f"odin dev is ready ({took_seconds:.1f} s); not for production", "1")
    console.line(f"  address     {address}")
    console.line(f"  data        {place.folder} (--fresh deletes it)")
    if found is not None:
        console.line(f"  workflows   {listed(found.workflow_names())}")
        console.line(f"  activities  {listed(found.activity_names())}")
        for workflow in found.workflows[:SAMPLES_MAX]:
            sample = sample_command(workflow, found.options.get("task_queue", DEFAULT_TASK_QUEUE))
            console.line(f"  try         {sample}")
    elif not options.targets:
        console.line("  workflows   none: no module was named")
        for name in candidates(options.root):
            console.line(f"  try         odin dev {name}")
    console.line("  end         Ctrl-C")


def candidates(root: Path) -> list[str]:
    """Return the modules of the folder that seem to hold workflows; they are read, not imported."""
    found = []
    for path in sorted(root.glob("*.py")):
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_READ_BYTES_MAX)
        if any(mark in text for mark in _MARKS):
            found.append(path.stem)
    return found
