"""What keeps the database from answering or from writing: kept, told and logged once per episode.

    well ──a call fails──▶ episode ──it goes well again, and has failed no more for a while──▶ well

Of two kinds: the server cannot be *reached*, or it is there and *takes no writes*. Small writes may
fit into what room is left while larger ones do not: an episode outlasts a call that goes well among
others that fail.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from odin.errors import StoreFullError, StoreUnavailableError
from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

log = logging.getLogger(__name__)

REACHED_SECONDS: Final = 1.0
"""An episode in which nothing was reached ends with an answer this long after its last failure."""
WROTE_SECONDS: Final = 2.0
"""The same, of one in which nothing was written, with a group that commits."""
ANSWERED_SECONDS: Final = 10.0
"""An engine with nothing to write takes the answer to any other call for it, so long after."""
RETRY_SECONDS: Final = 0.5
_DETAIL_CHARS: Final = 200

DISK_FULL: Final = "53100"
READ_ONLY: Final = "25006"
_TAKES_NO_WRITES: Final = {
    DISK_FULL: "Postgres has no room left on its disk; free space there",
    "53200": "Postgres is out of memory; give it more, or let it do less at once",
    "53400": "Postgres has met a limit of its configuration; raise it",
    READ_ONLY: "Postgres takes no writes (a standby, or made read-only); point odin at the primary",
}
_NOT_REACHED: Final = {
    "53300": "Postgres has no connection left to give; raise max_connections",
    "57P01": "Postgres ends its connections",
    "57P02": "Postgres has crashed",
    "57P03": "Postgres is starting, recovering or shutting down; its log says why",
}
_NOBODY: Final = "Postgres does not answer; see that it runs and can be reached"
NOT_CONNECTED: Final = "08001"
"""Stands for whatever the network says in place of a server."""
_CONNECTION: Final = "08"


def sqlstate_of(error: BaseException) -> str:
    """Return the server's code, NOT_CONNECTED if it was not the server that spoke, or ""."""
    given = getattr(error, "sqlstate", None)
    if isinstance(given, str):
        return given
    return "" if isinstance(error, asyncpg.PostgresError) else NOT_CONNECTED


def why_of(sqlstate: str) -> str:
    """Return what a code says of the server, and what to do; "" if it is about the call."""
    known = _TAKES_NO_WRITES.get(sqlstate) or _NOT_REACHED.get(sqlstate)
    return known or (_NOBODY if sqlstate.startswith(_CONNECTION) else "")


def detail_of(error: BaseException) -> str:
    """Return the error's own words for people: short, on one line, and without secrets."""
    words = " ".join(str(error).split())[:_DETAIL_CHARS]
    return redact(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def unavailable(sqlstate: str, what: str) -> StoreUnavailableError:
    """Return what a caller is told whose call the database has definitely not carried out.

    Args:
        sqlstate: The server's code, or NOT_CONNECTED.
        what: What befell the call.
    """
    why = why_of(sqlstate) or "the database did not do it"
    kind = StoreFullError if sqlstate == DISK_FULL else StoreUnavailableError
    return kind(
        f"{why}; nothing was changed, and the same call is safe to send again"
        f" ({redact(' '.join(what.split()))})",
        retry_after=RETRY_SECONDS,
    )


@dataclass(slots=True)
class _Episode:
    """Failures of one kind, from the first to the newest."""

    sqlstate: str
    detail: str
    began_at: float
    failed_at: float


class Condition:
    """How the database has served one incarnation lately.

    Args:
        clock: Measures the episodes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unreached: _Episode | None = None
        self._unwritten: _Episode | None = None

    @property
    def cause(self) -> str:
        """What is wrong, since how many seconds, and what to do; "" if nothing is."""
        episode = self._unreached or self._unwritten
        if episode is None:
            return ""
        seconds = self._clock.boottime() - episode.began_at
        return f"{why_of(episode.sqlstate)}; so for {seconds:.0f} s ({episode.detail})"

    def refusal(self) -> StoreUnavailableError | None:
        """Return what a caller is told who cannot be served while this lasts; None: all is well."""
        episode = self._unreached or self._unwritten
        if episode is None:
            return None
        seconds = self._clock.boottime() - episode.began_at
        return unavailable(episode.sqlstate, f"so for {seconds:.0f} s: {episode.detail}")

    def failed(self, error: BaseException) -> None:
        """A call has failed."""
        sqlstate = sqlstate_of(error)
        if sqlstate in _TAKES_NO_WRITES:
            self._unwritten = self._met(self._unwritten, sqlstate, error)
        elif why_of(sqlstate):
            self._unreached = self._met(self._unreached, sqlstate, error)
        else:  # a word about the call and not about the server
            self.answered()

    def answered(self) -> None:
        """A call that writes nothing, or next to nothing, went well."""
        self._unreached = self._over(self._unreached, REACHED_SECONDS)
        self._unwritten = self._over(self._unwritten, ANSWERED_SECONDS)

    def wrote(self) -> None:
        """A group has committed."""
        self._unreached = self._over(self._unreached, REACHED_SECONDS)
        self._unwritten = self._over(self._unwritten, WROTE_SECONDS)

    def _met(self, old: _Episode | None, sqlstate: str, error: BaseException) -> _Episode:
        now, detail = self._clock.boottime(), detail_of(error)
        if old is None:
            log.warning("database fails", extra={"why": why_of(sqlstate), "detail": detail})
            return _Episode(sqlstate, detail, now, now)
        old.sqlstate, old.detail, old.failed_at = sqlstate, detail, now
        return old

    def _over(self, old: _Episode | None, seconds: float) -> _Episode | None:
        if old is None:
            return None
        now = self._clock.boottime()
        if now - old.failed_at < seconds:
            return old
        log.warning(
            "database serves again",
            extra={"why": old.detail, "seconds": round(old.failed_at - old.began_at, 1)},
        )
        return None
