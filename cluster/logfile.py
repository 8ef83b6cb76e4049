"""The parts' log files: what the last line says, and a cap on what they may grow to."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from pathlib import Path

CAP_BYTES: Final = 10 * 1024 * 1024
_TAIL_BYTES: Final = 64 * 1024
_WORDS_MAX: Final = 300
_SAID_ELSEWHERE: Final = {"at", "level", "service", "node", "logger", "event"}


def rotate(path: Path, cap_bytes: int = CAP_BYTES) -> bool:
    """Move what a log holds to `<name>.1` if it is larger than the cap; return whether it was.

    The part keeps its file open, so the content is copied and the file emptied: a part appends, and
    goes on at the new end. What it writes in the instant between the two is lost.
    """
    try:
        if path.stat().st_size <= cap_bytes:
            return False
        path.with_suffix(".log.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
    except OSError:  # no log yet, or no room: the next round tries again
        return False
    return True


def last_words(path: Path) -> str:
    """Return what the last line of a log says, in short; empty if there is none."""
    lines = tail(path, 1)
    return said(lines[0])[:_WORDS_MAX] if lines else ""


def tail(path: Path, count: int) -> list[str]:
    """Return the last lines of a log, of those in its last 64 kB."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def said(line: str) -> str:
    """Return a log line for people: the event and its facts; a line of another form as it is."""
    record = record_of(line)
    if record is None:
        return redact(line.strip())
    facts = " ".join(f"{k}={v}" for k, v in record.items() if k not in _SAID_ELSEWHERE)
    return redact(f"{record.get('event', '')} {facts}".strip())


def record_of(line: str) -> dict[str, object] | None:
    """Return the fields of a structured line; None if it is another text."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
