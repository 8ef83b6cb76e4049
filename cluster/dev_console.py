"""What the author sees: short lines, and of the log only what concerns them.

All of the log goes to a file as JSON. Shown of it are warnings of odin, and what the author's own
modules, workflows and activities log from INFO on. A workflow task that fails is shown once for
each loading of the code: it is retried for ever, and would fill the screen.
"""

from __future__ import annotations

import linecache
import logging
import os
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from odin.cli.authored import short_path
from odin.runtime.clock import SystemClock
from odin.runtime.log import JsonFormatter, escape, fields_of
from odin.runtime.redaction import redact
from odin.runtime.services import module_of

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG_BYTES_MAX: Final = 10 * 1024 * 1024
TASK_FAILED: Final = "workflow task failed"
_AUTHORS: Final = ("odin.workflow", "odin.activity")
_FOREIGN: Final = ("uvicorn", "aiohttp", "asyncio", "aio_pika", "aiormq", "websockets")
_COLOURS: Final = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}


class Console:
    """Writes lines for the author; a terminal that has gone away is no error.

    Args:
        root: The author's folder, left out of paths.
        stream: Where to.
    """

    def __init__(self, root: Path, stream: TextIO) -> None:
        self._root = root
        self._stream: TextIO | None = stream
        self._coloured = stream.isatty() and "NO_COLOR" not in os.environ

    def line(self, text: str = "", colour: str = "") -> None:
        """Write a line as it is."""
        if self._coloured and colour:
            text = f"\x1b[{colour}m{text}\x1b[0m"
        if self._stream is None:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def event(self, text: str, colour: str = "", at: float | None = None) -> None:
        """Write a line with the time of day; further lines of the text are indented below it."""
        now = SystemClock().wall() if at is None else datetime.fromtimestamp(at, UTC)
        moment = now.astimezone()
        first, *others = text.splitlines() or [""]
        self.line(f"{moment:%H:%M:%S} {first}", colour)
        for other in others:
            self.line(f"         {other}")

    def place(self, source: str) -> str:
        """Return `file:line` with the line itself, as far as it can be read."""
        file, _, number = source.rpartition(":")
        if not file or not number.isdecimal():
            return source
        linecache.checkcache(file)
        text = linecache.getline(file, int(number)).strip()
        shown = f"{short_path(file, self._root)}:{number}"
        return f"{shown}: {text}" if text else shown


class ConsoleHandler(logging.Handler):
    """Shows records to the author."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._internal = ("odin", module_of("engine"), module_of("relay"))
        self._told: set[tuple[str, ...]] = set()

    def forget(self) -> None:
        """Show failing workflow tasks once more: the code is another one."""
        self._told.clear()

    def silence(self) -> None:
        """Show nothing more: what is cut while everything ends is of no interest."""
        self.setLevel(logging.CRITICAL + 1)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, or leave it out."""
        if record.levelno < logging.WARNING and not self._is_authors(record.name):
            return
        facts = fields_of(record)
        if record.getMessage() == TASK_FAILED:
            if record.name.startswith("odin.worker"):  # the engine logs it as well
                self._task_failed(record, {key: str(value) for key, value in facts.items()})
            return
        text = escape(redact(record.getMessage()))
        shown = " ".join(f"{key}={escape(str(value))}" for key, value in facts.items())
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = f"{level}{text} {shown}".rstrip()
        if record.exc_info:
            text += "\n" + redact(logging.Formatter().formatException(record.exc_info))
        self._console.event(text, _COLOURS.get(record.levelno, ""), record.created)

    def _task_failed(self, record: logging.LogRecord, facts: dict[str, str]) -> None:
        known = tuple(facts.get(key, "") for key in ("run_id", "error_type", "detail", "source"))
        if known in self._told:
            return
        self._told.add(known)
        run = facts.get("workflow_id") or facts.get("run_id", "?")
        told = [f"workflow task of {run} ({facts.get('workflow_type')}) fails"]
        told += [f"  {one}" for one in facts.get("detail", "").splitlines()]
        if source := facts.get("source"):
            told.append(f"  {self._console.place(source)}")
        told.append("  it is tried again until the code fits: edit and save")
        told.append(f"  to give up: odin terminate {run}")
        self._console.event("\n".join(told), _COLOURS[logging.ERROR], record.created)

    def _is_authors(self, name: str) -> bool:
        if name.startswith(_AUTHORS):
            return True
        return not any(
            name == one or name.startswith(f"{one}.") for one in (*self._internal, *_FOREIGN)
        )


def set_up_logging(console: Console, file: Path) -> ConsoleHandler:
    """Send every record to the file, and what concerns the author to the console."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = RotatingFileHandler(file, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
    whole.setFormatter(JsonFormatter("dev"))
    shown = ConsoleHandler(console)
    root = logging.getLogger()
    root.handlers[:] = [whole, shown]
    root.setLevel(logging.INFO)
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    return shown


def listed(names: Iterable[str], empty: str = "none") -> str:
    """Return names with commas."""
    return ", ".join(names) or empty
