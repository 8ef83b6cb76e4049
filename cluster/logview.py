"""`odin logs`: the parts' log files as one stream, in order of time, and on as they grow."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from odin.cli.output import clean, is_for_people, write, write_json
from odin.errors import NotFoundError

from .logfile import record_of, said, tail
from .state import read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .place import Place

FOLLOW_SECONDS: Final = 0.3
_COLORS: Final = (36, 32, 35, 34, 33, 96, 92, 95, 94, 93)
_LEVELS: Final = {"warning": 33, "error": 31, "critical": 31}
_NAME_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown.

    Attributes:
        part: Its name; empty for all.
        follow: Whether to go on.
        count: Last lines of each part to begin with.
        as_json: Whether programs read it.
    """

    part: str = ""
    follow: bool = False
    count: int = 50
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one part; one without a time has that of the line before it."""

    at: str
    part: str
    text: str


def show(place: Place, wanted: Wanted) -> int:
    """Print what is there; with `follow` go on until interrupted.

    Raises:
        NotFoundError: there is no such part.
    """
    paths = log_paths(place)
    if wanted.part:
        if wanted.part not in paths:
            known = ", ".join(paths) or "none"
            raise NotFoundError(f"no log of {wanted.part!r}: there are {known}")
        paths = {wanted.part: paths[wanted.part]}
    followed = {name: Follower(path) for name, path in paths.items()}
    begun = [line for name, path in paths.items() for line in dated(name, tail(path, wanted.count))]
    _print(sorted(begun, key=lambda line: line.at), wanted)
    while wanted.follow:
        sys.stdout.flush()
        sleep(FOLLOW_SECONDS)
        fresh = [line for name, one in followed.items() for line in dated(name, one.more())]
        _print(sorted(fresh, key=lambda line: line.at), wanted)
    return 0


def log_paths(place: Place) -> dict[str, Path]:
    """Return the log files by part: those of the last cluster, and others that are there."""
    state = read_state(place)
    found = {one.name: Path(one.log) for one in state.parts if one.log} if state else {}
    for path in sorted(place.logs.glob("*.log")):
        found.setdefault(path.stem, path)
    return {name: path for name, path in found.items() if path.exists()}


def dated(part: str, lines: Iterable[str]) -> Iterator[Line]:
    """Yield the lines with their times."""
    at = ""
    for line in lines:
        record = record_of(line)
        at = str(record.get("at", at)) if record else at
        yield Line(at, part, line)


class Follower:
    """Reads what is added to a file, also after it was emptied because it had grown too long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._size()

    def more(self) -> list[str]:
        """Return the whole lines that were added since the last call."""
        size = self._size()
        if size < self._seen:
            self._seen = 0
        if size == self._seen:
            return []
        with self._path.open("rb") as file:
            file.seek(self._seen)
            text = file.read(size - self._seen)
        whole = text[: text.rfind(b"\n") + 1]
        self._seen += len(whole)
        return whole.decode(errors="replace").splitlines()

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def _print(lines: Iterable[Line], wanted: Wanted) -> None:
    colored = is_for_people() and not wanted.as_json
    for line in lines:
        if wanted.as_json:
            write_json(as_record(line))
        else:
            write(as_text(line, colored=colored))


def as_record(line: Line) -> dict[str, Any]:
    """Return a line for programs: its fields, and the part's name as `part`."""
    record = record_of(line.text)
    return {"part": line.part, **(record if record is not None else {"line": line.text})}


def as_text(line: Line, *, colored: bool) -> str:
    """Return a line for people."""
    record = record_of(line.text) or {}
    level = str(record.get("level", ""))
    text = clean(said(line.text))
    name = f"{line.part:<{_NAME_WIDTH}}"
    time = line.at[11:23] if record else " " * 12
    if not colored:
        return f"{time} {name} {level:<7} {text}"
    shade = _COLORS[sum(line.part.encode()) % len(_COLORS)]
    body = f"\x1b[{_LEVELS[level]}m{text}\x1b[0m" if level in _LEVELS else text
    return f"\x1b[2m{time}\x1b[0m \x1b[{shade}m{name}\x1b[0m {body}"
