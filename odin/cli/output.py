"""What commands print: tables and JSON on stdout, chatter on stderr; colours only for people."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.errors import InvalidArgumentError
from odin.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STYLES: Final = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "timed_out": "red",
    "terminated": "red",
    "canceled": "yellow",
    "alive": "green",
    "draining": "yellow",
    "dead": "red",
    "valid": "green",
    "invalid": "red",
    "unknown": "yellow",
}


def write(line: str) -> None:
    """Write a line of data to stdout, at once: somebody may be following."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def chat(line: str) -> None:
    """Write a line for people to stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def write_json(value: object) -> None:
    """Write a value as one line of JSON to stdout."""
    write(msgspec.json.encode(value).decode())


def is_for_people() -> bool:
    """Whether stdout is a terminal (or FORCE_COLOR says that it is to be treated as one)."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows under their columns: a table for people, tab-separated lines for programs."""
    safe = [[clean(cell) for cell in row] for row in rows]
    if not is_for_people():
        for row in [list(columns), *safe]:
            write("\t".join(row))
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only for terminals
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        is_outer = place in (0, len(columns) - 1)  # ids, to be copied whole, and free text
        table.add_column(column, overflow="fold", no_wrap=not is_outer)
    for row in safe:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(table)


def clean(text: str) -> str:
    """Return text of others without the characters that could steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def shorten(value: Any, limit: int = 60) -> str:  # noqa: ANN401 - any JSON
    """Return a value as JSON of at most `limit` characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def duration_of(text: str, what: str) -> timedelta:
    """Return a duration written like 30s, 1h30m, 500ms.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if not _WHOLE.fullmatch(text) or len(text) > 40:  # noqa: PLR2004 - no honest duration is longer
        raise InvalidArgumentError(
            f"{what} {text!r} is not a duration: write it like 30s, 5m, 1h30m"
        )
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text)))
    except OverflowError as error:
        raise InvalidArgumentError(f"{what} {text!r} is too long") from error


def span(seconds: float) -> str:
    """Return a duration for people: two figures are enough."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    if seconds < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def instant(text: str | datetime | None) -> datetime | None:
    """Return an instant as the API writes it."""
    if text is None or isinstance(text, datetime):
        return text
    return datetime.fromisoformat(text)


def local(at: str | datetime | None, now: datetime | None = None) -> str:
    """Return an instant in local time, and how long ago it was or how soon it is."""
    when = instant(at)
    if when is None:
        return "-"
    away = (when - (now or SystemClock().wall())).total_seconds()
    relative = f"in {span(away)}" if away > 0 else f"{span(-away)} ago"
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S} ({relative})"


def utc(at: datetime) -> str:
    """Return an instant in UTC, as the API takes it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
