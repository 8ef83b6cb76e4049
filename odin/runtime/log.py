"""Structured logs: a constant phrase as the event, facts as fields, one line per record.

The identifiers of the work in hand come from a context variable that is set once at the edge, so
that every record below carries them. A library sets nothing up for its authors: only a service's
`run` calls `setup_logging`.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

work: ContextVar[Mapping[str, object]] = ContextVar("work")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET_FIELDS = frozenset({"authorization", "cookie", "dsn", "password", "secret", "token"})
_TEXT_CHARACTERS_MAX = 8_192
_QUIET = ("aio_pika", "aiormq", "asyncio", "uvicorn.access", "uvicorn.error", "websockets")
_COLORS = {"debug": "2", "info": "36", "warning": "33", "error": "31", "critical": "31;1"}


@contextmanager
def working_on(**ids: object) -> Iterator[None]:
    """Add `ids` (workflow_id, run_id, shard_id, ...) to every record logged inside the block."""
    token = work.set({**work.get({}), **ids})
    try:
        yield
    finally:
        work.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the ids of the work and the record's own fields, secrets blotted out."""
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {key: _safe(key, value) for key, value in {**work.get({}), **extra}.items()}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; control characters cannot leave the line."""

    def __init__(self, service: str = "", node: str = "") -> None:
        """Name the service and the node that stand in every line."""
        super().__init__()
        self._origin = {k: v for k, v in (("service", service), ("node", node)) if v}

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            **self._origin,
            "logger": record.name,
            "event": _safe("event", record.getMessage()),
            **fields_of(record),
        }
        if record.exc_info:
            line["error"] = _safe("error", self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class PrettyFormatter(logging.Formatter):
    """Formats a record for a person at a terminal."""

    def __init__(self, service: str = "", node: str = "") -> None:
        """Name the service and the node that stand in every line."""
        super().__init__()
        self._origin = node or service

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a coloured line, with the stack below if there is one."""
        level = record.levelname.lower()
        facts = " ".join(
            f"\x1b[2m{key}=\x1b[0m{escape(str(value))}" for key, value in fields_of(record).items()
        )
        event = escape(str(_safe("event", record.getMessage())))
        text = (
            f"\x1b[2m{_at(record)[11:23]}\x1b[0m \x1b[{_COLORS.get(level, '0')}m{level:<7}\x1b[0m "
            f"{self._origin:<10} {event} {facts}"
        ).rstrip()
        if record.exc_info:
            stack = self.formatException(record.exc_info)
            text += "\n" + "\n".join(escape(redact(line)) for line in stack.splitlines())
        return text


def setup_logging(
    service: str, node: str = "", *, level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send every record of this process to `stream`: JSON, or for people if it is a terminal.

    Args:
        service: The service's name, e.g. "engine".
        node: The node's name, if it has one.
        level: The lowest level that is written.
        stream: Where to; standard error by default.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    formatter = PrettyFormatter if stream.isatty() else JsonFormatter
    handler.setFormatter(formatter(service, node))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def escape(text: str) -> str:
    """Return `text` with control characters written out: no record can forge a second one."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _safe(key: str, value: object) -> object:
    if key.lower() in _SECRET_FIELDS:
        return "***"
    if isinstance(value, bool | int | float | type(None)):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe("", one) for one in value]
    if isinstance(value, dict):
        return {str(name): _safe(str(name), one) for name, one in value.items()}
    text = redact(str(value))
    if len(text) > _TEXT_CHARACTERS_MAX:
        return f"{text[:_TEXT_CHARACTERS_MAX]}… ({len(text)} characters)"
    return text


def _at(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
