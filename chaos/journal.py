"""What happened in every experiment, one JSON object per line; nothing is ever changed in it.

    armed, probed, drawn, injected, verified, seen, healed, recovered, judged, halted

Each line has the experiment, the instant (UTC) and what was found. The file is read by `odin chaos
history` and `show`; if Postgres has the table `chaos_experiment`, the sum of each experiment goes
there too (`chaos.evidence`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odin.runtime.clock import Clock

FILE: Final = "chaos.jsonl"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        at: When, ISO 8601, UTC.
        experiment_id: Which experiment.
        scenario: What it is.
        phase: What happened: see the module.
        details: What was found.
    """

    at: str
    experiment_id: str
    scenario: str
    phase: str
    details: dict[str, Any] = {}


class Journal:
    """The lines of one experiment."""

    def __init__(
        self,
        folder: Path,
        experiment_id: str,
        scenario: str,
        clock: Clock,
        tell: Callable[[Line], None] = lambda _: None,
    ) -> None:
        """Remember where to write; `tell` is shown every line too."""
        self._path = folder / FILE
        self._id = experiment_id
        self._scenario = scenario
        self._clock = clock
        self._tell = tell

    def write(self, phase: str, **details: Any) -> None:  # noqa: ANN401 - anything that becomes JSON
        """Append a line."""
        line = Line(
            at=self._clock.wall().isoformat(timespec="milliseconds"),
            experiment_id=self._id,
            scenario=self._scenario,
            phase=phase,
            details=details,
        )
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._tell(line)


def read(folder: Path) -> list[Line]:
    """Return every line; one that was cut off in the middle is left out."""
    try:
        lines = (folder / FILE).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Line) for line in lines if line]
