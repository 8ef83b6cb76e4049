"""`odin chaos history` and `show`: what the journal tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from odin.cli.output import write, write_json, write_table
from odin.errors import InvalidArgumentError, NotFoundError
from odin.runtime.clock import SystemClock

from .faults.levers import Levers
from .journal import Line, read
from .telling import told_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS: Final = ("ID", "VERDICT", "CHECKER", "BIT", "STALL", "RECOVERED", "REPLAY OF")


def show_history(folder: Path | None, *, as_json: bool) -> int:
    """Show every experiment of the cluster, the newest last; return 0."""
    lines = read(Levers(folder, SystemClock()).folder)
    found = [_sum(group) for group in _by_experiment(lines).values()]
    if as_json:
        write_json(found)
        return 0
    write_table(COLUMNS, [tuple(one[name] for name in _KEYS) for one in found])
    return 0


def show_one(folder: Path | None, experiment_id: str, *, as_json: bool) -> int:
    """Show every line of one experiment; return 0.

    Raises:
        InvalidArgumentError: none is named.
        NotFoundError: there is none of this id.
    """
    if not experiment_id:
        raise InvalidArgumentError("which experiment? `odin chaos history` shows the ids")
    lines = read(Levers(folder, SystemClock()).folder)
    found = [one for one in lines if one.experiment_id == experiment_id]
    if not found:
        raise NotFoundError(f"no experiment {experiment_id!r} is in the journal")
    if as_json:
        write_json(msgspec.to_builtins(found))
        return 0
    for line in found:
        write(told_line(line, whole=True))
    return 0


_KEYS: Final = ("id", "verdict", "checker", "bit", "stall", "recovered", "replay_of")


def _by_experiment(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.experiment_id, []).append(line)
    return found


def _sum(lines: Sequence[Line]) -> dict[str, str]:
    judged = next((one.details for one in reversed(lines) if one.phase == "judged"), {})
    checked = next((one.details for one in reversed(lines) if one.phase == "checked"), {})
    counts = judged.get("counts") or {}
    recovered = judged.get("recovered_seconds")
    return {
        "id": lines[0].experiment_id,
        "verdict": str(judged.get("verdict", "under way, or its runner died")),
        "checker": str(checked.get("verdict", "-")),
        "bit": "yes" if judged.get("bit") else "no",
        "stall": f"{counts['longest stall']} s" if counts else "-",
        "recovered": "-" if recovered is None else f"{recovered} s",
        "replay_of": str(lines[0].details.get("replay_of", "-")),
    }
