"""Finds the place in a stream at which a fault is to bite.

A match is a pair of offsets in the chunk just read: where what completes the pattern begins, and
where it ends. What of it came with earlier chunks has passed already.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol


class Match(NamedTuple):
    """Offsets in a chunk: [start, end) completes the pattern."""

    start: int
    end: int


class Finder(Protocol):
    """Looks at a stream, chunk by chunk."""

    def feed(self, chunk: bytes) -> Match | None:
        """Return the first match that ends in the chunk."""
        ...


class Literal:
    """Finds a sequence of bytes, wherever the stream was cut into chunks."""

    def __init__(self, pattern: bytes) -> None:
        self._pattern = pattern
        self._tail = b""

    def feed(self, chunk: bytes) -> Match | None:
        """Return the first match that ends in the chunk."""
        kept = len(self._tail)
        window = self._tail + chunk
        at = window.find(self._pattern)
        self._tail = window[-(len(self._pattern) - 1) :] if len(self._pattern) > 1 else b""
        if at < 0:
            return None
        return Match(max(0, at - kept), at + len(self._pattern) - kept)


_UNTYPED_MAX: Final = 10_000
_STARTUP: Final = 196_608
_SSL_OR_GSS: Final = (80_877_103, 80_877_104)
_HEAD_BYTES: Final = 5
_LENGTH_BYTES: Final = 4
_KEPT_BYTES: Final = {ord("P"): 4_096, ord("B"): 512, ord("Q"): 4_096}
_STATEMENTS_MAX: Final = 1_000


class Sent(NamedTuple):
    """A statement that is complete: a Sync, or a simple query, and its text."""

    match: Match
    text: bytes


class Postgres:
    """Follows the messages of a Postgres client: which statement does this Sync execute?

    Statements are prepared once and executed by name, so the text alone tells nothing of later
    executions. A stream that is encrypted, or not Postgres's at all, is given up silently.
    """

    def __init__(self) -> None:
        self._texts: dict[bytes, bytes] = {}
        self._bound = b""
        self._head = b""
        self._kept = b""
        self._kind = 0
        self._left = 0  # bytes of the message under way that have not come yet
        self._is_typed = False
        self._is_lost = False

    def feed(self, chunk: bytes) -> list[Sent]:
        """Return the statements whose last message ends in the chunk."""
        found: list[Sent] = []
        at, start = 0, 0
        while at < len(chunk) and not self._is_lost:
            if not self._left:
                if not self._head:
                    start = at
                size = (_HEAD_BYTES if self._is_typed else _LENGTH_BYTES) - len(self._head)
                self._head += chunk[at : at + size]
                at += size
                if at > len(chunk) or not self._begin():
                    break
            else:
                piece = chunk[at : at + self._left]
                self._keep(piece)
                self._left -= len(piece)
                at += len(piece)
            if not self._left:
                text = self._end()
                if text is not None:
                    found.append(Sent(Match(start, at), text))
        return found

    def _begin(self) -> bool:
        """Read the head of a message; return whether it may be one."""
        length = int.from_bytes(self._head[-4:], "big")
        self._kind = self._head[0] if self._is_typed else 0
        limit = 1 << 30 if self._is_typed else _UNTYPED_MAX
        self._is_lost = not _LENGTH_BYTES <= length <= limit
        self._left = length - _LENGTH_BYTES
        self._kept = b""
        self._head = b""
        return not self._is_lost

    def _keep(self, piece: bytes) -> None:
        room = (_KEPT_BYTES.get(self._kind, 0) if self._is_typed else _LENGTH_BYTES) - len(
            self._kept
        )
        if room > 0:
            self._kept += piece[:room]

    def _end(self) -> bytes | None:
        """Take in a whole message; return the statement's text if it completes one."""
        if not self._is_typed:
            code = int.from_bytes(self._kept[:4], "big")
            self._is_typed = code == _STARTUP or code >> 16 == _STARTUP >> 16
            self._is_lost = not self._is_typed and code not in _SSL_OR_GSS
            return None
        match chr(self._kind):
            case "P":
                name, _, rest = self._kept.partition(b"\0")
                if len(self._texts) < _STATEMENTS_MAX:
                    self._texts[name] = rest.partition(b"\0")[0]
            case "B":
                name = self._kept.partition(b"\0")[2].partition(b"\0")[0]
                self._bound = self._texts.get(name, b"")
            case "S":
                text, self._bound = self._bound, b""
                return text
            case "Q":
                return self._kept.partition(b"\0")[0]
            case _:
                pass
        return None
