"""Connections to Postgres with every wait bounded, and what a failed write means.

The session settings are part of the fencing argument, not tuning: a process frozen inside a
transaction holds the lock that its successor needs, so the *server* must end it
(`idle_in_transaction_session_timeout`), and a connection whose peer vanished without a word must be
noticed (`tcp_user_timeout`, keepalives, `client_connection_check_interval`).

`application_name` carries the incarnation, which is how a taker finds the backends of a dead one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from odin.errors import ConfigurationError
from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
PooledConnection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

# Postgres cuts a longer name silently, and a cut incarnation is one that nobody finds.
APPLICATION_NAME_BYTES_MAX = 63


@dataclass(frozen=True, slots=True)
class Session:
    """Bounds of one connection, in seconds. The defaults suit the writers of an engine.

    `command_timeout` is the client's own bound and lies above `statement_timeout`: the server's
    answer says what happened, the client's timeout only that nobody knows.
    """

    idle_in_transaction_timeout: float = 3.0
    lock_timeout: float = 1.0
    statement_timeout: float = 3.0
    command_timeout: float = 5.0
    connect_timeout: float = 5.0
    tcp_user_timeout: float = 6.0
    read_only: bool = False

    def __post_init__(self) -> None:
        """Refuse bounds in which the inner one could never fire.

        Raises:
            ConfigurationError: the bounds are not in order.
        """
        if not 0 < self.lock_timeout <= self.statement_timeout < self.command_timeout:
            raise ConfigurationError(
                "a Postgres session needs 0 < lock_timeout <= statement_timeout < command_timeout, "
                f"got {self.lock_timeout}, {self.statement_timeout}, {self.command_timeout} s"
            )

    def server_settings(self, application_name: str) -> dict[str, str]:
        """Return the settings that the server is asked to hold for the session."""
        settings = {
            "application_name": application_name,
            "client_connection_check_interval": "2000",
            "default_transaction_isolation": "read committed",
            "idle_in_transaction_session_timeout": _milliseconds(self.idle_in_transaction_timeout),
            "jit": "off",
            "lock_timeout": _milliseconds(self.lock_timeout),
            "statement_timeout": _milliseconds(self.statement_timeout),
            "tcp_keepalives_count": "2",
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_user_timeout": _milliseconds(self.tcp_user_timeout),
            "timezone": "UTC",
        }
        if self.read_only:
            settings["default_transaction_read_only"] = "on"
        return settings


WRITER = Session()
READER = Session(statement_timeout=10.0, command_timeout=12.0, read_only=True)


class WriteOutcome(Enum):
    """What became of a write. Only `UNKNOWN` asks for a new range before anything is read."""

    COMMITTED = "committed"
    REFUSED = "refused"
    RAISED = "raised"
    UNKNOWN = "unknown"


async def create_pool(
    dsn: str,
    *,
    name: str,
    application_name: str,
    min_size: int,
    max_size: int,
    session: Session = WRITER,
) -> Pool:
    """Open a pool whose every connection is bounded as `session` says.

    A released connection is rolled back if a transaction was open on it, and nothing more: odin
    sets nothing on a session, so the usual reset would cost a round trip for nothing.

    Args:
        dsn: `postgresql://...`.
        name: What the pool is for, for messages ("reads", "lane").
        application_name: What `pg_stat_activity` shows; carries the incarnation.
        min_size: Connections opened now; at most `max_size`.
        max_size: Connections at most; part of the sum that `check_max_connections` is given.
        session: The bounds.

    Raises:
        ConfigurationError: `application_name` is too long to arrive whole.
        OSError, asyncpg.PostgresError: the server cannot be reached or refuses; `TimeoutError`
            after `session.connect_timeout`.
    """
    _check_application_name(application_name, name)
    return await asyncpg.create_pool(
        dsn,
        min_size=min_size,
        max_size=max_size,
        timeout=session.connect_timeout,
        command_timeout=session.command_timeout,
        server_settings=session.server_settings(application_name),
        reset=_leave_session_as_it_is,
    )


async def connect(dsn: str, *, application_name: str, session: Session = WRITER) -> Connection:
    """Open one connection outside every pool, for a lease or a lane.

    Raises:
        ConfigurationError, OSError, asyncpg.PostgresError: as for `create_pool`.
    """
    _check_application_name(application_name, "connection")
    return await asyncpg.connect(
        dsn,
        timeout=session.connect_timeout,
        command_timeout=session.command_timeout,
        server_settings=session.server_settings(application_name),
    )


async def close_pool(pool: Pool, timeout_seconds: float = 2.0) -> None:
    """Close `pool`; connections that do not come back in time are cut."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await pool.close()
    except TimeoutError:
        pool.terminate()


def classify(error: BaseException) -> WriteOutcome:
    """Say what `error`, raised by a write, tells of its outcome: `RAISED` or `UNKNOWN`.

    `RAISED` only where the server itself reported an error that ends the transaction and leaves the
    session standing. A lost connection, a timeout on this side, a cancellation, a shutdown of the
    server or of the backend: the commit may have happened, or may still happen. Whatever else a
    write raises is unknown too: asyncpg tells of a connection torn under it by several classes,
    `InternalClientError` among them, which share no base.
    """
    if not isinstance(error, asyncpg.PostgresError):
        return WriteOutcome.UNKNOWN
    severity = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    if severity in _SESSION_ENDS:
        return WriteOutcome.UNKNOWN
    sqlstate = error.sqlstate or ""
    if not sqlstate or sqlstate.startswith(_UNKNOWN_SQLSTATES):
        return WriteOutcome.UNKNOWN
    return WriteOutcome.RAISED


async def check_max_connections(connection: Connection | PooledConnection, needed: int) -> None:
    """Refuse to start when the fixed pools could not all be filled.

    Args:
        connection: Any connection to the server.
        needed: The sum of `max_size` over all pools of all processes that share it.

    Raises:
        ConfigurationError: the server allows fewer.
    """
    row = await connection.fetchrow(_CONNECTION_LIMITS)
    assert row is not None, "an aggregate always yields a row"  # noqa: S101 - for the type checker
    usable = int(row["maximum"]) - int(row["reserved"])
    if needed > usable:
        raise ConfigurationError(
            f"the connection pools need {needed} connections, and this Postgres gives {usable} "
            f"(max_connections {row['maximum']}, {row['reserved']} of them reserved): raise "
            "max_connections or make the pools smaller",
            details={"needed": needed, "usable": usable},
        )


async def _leave_session_as_it_is(_connection: object) -> None:
    """Stand in for asyncpg's reset, which has rolled back by the time this is called."""


def _check_application_name(application_name: str, name: str) -> None:
    if len(application_name.encode()) > APPLICATION_NAME_BYTES_MAX:
        raise ConfigurationError(
            f"application_name {application_name!r} of the {name!r} connections is longer than "
            f"{APPLICATION_NAME_BYTES_MAX} bytes and would be cut: use a shorter node id"
        )


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1_000))


_SESSION_ENDS = frozenset({"FATAL", "PANIC"})

# Connection exceptions, "statement completion unknown", and the operator's interventions that end
# the backend: none of them says whether the commit came first.
_UNKNOWN_SQLSTATES = ("08", "40003", "57P", "25P03", "58", "XX")

# reserved_connections came with Postgres 16; a server that lacks it reserves none.
_CONNECTION_LIMITS = """
SELECT
    max(setting::integer) FILTER (WHERE name = 'max_connections') AS maximum,
    coalesce(sum(setting::integer) FILTER (WHERE name <> 'max_connections'), 0) AS reserved
FROM pg_settings
WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
"""

__all__ = [
    "APPLICATION_NAME_BYTES_MAX",
    "READER",
    "WRITER",
    "Connection",
    "Pool",
    "PooledConnection",
    "Session",
    "WriteOutcome",
    "check_max_connections",
    "classify",
    "close_pool",
    "connect",
    "create_pool",
    "redact",
]
