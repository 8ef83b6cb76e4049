"""Statements of several kinds as data: what each locks, and what it then reads and writes.

A statement runs in three steps, as in Postgres:

    locks(...)   which rows to lock, in order; the server waits for them one by one
    run(...)     on the state after the wait: what comes back, and what is to be written
    the writes   take place as the transaction commits, all at once

`acquire_shard`, for one, judges nodes and leases as they stand once the shard's row is its own, and
commits a little later: a node may die in between, as it may in Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from .tables import Tables

Row: TypeAlias = Any
Write: TypeAlias = Callable[[int], None]
"""What a commit does to the tables; it is given the transaction's id."""

SHARED: Final = False
EXCLUSIVE: Final = True
LEASE_AHEAD_US: Final = 20_000_000


@dataclass(slots=True)
class Lock:
    """A row (or a key of a unique index) and how it is locked.

    Attributes:
        skip: Leave out what is locked by somebody else (SKIP LOCKED) instead of waiting.
    """

    key: Hashable
    exclusive: bool = EXCLUSIVE
    skip: bool = False


@dataclass(slots=True)
class Context:
    """What a statement sees: the committed tables, the clock, its arguments, what it has locked."""

    tables: Tables
    now_us: int
    arguments: Sequence[Any]
    held: set[Hashable]
    backends: Any = None
    txid: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """One named query.

    Attributes:
        run: What comes back, and what is to be written.
        locks: What to lock before that.
        reads_only: Whether it never locks or writes anything.
        judge: Called once the locks are held; `run` then follows at the commit's instant.
    """

    run: Callable[[Context], tuple[list[Row], list[Write]]]
    locks: Callable[[Context], list[Lock]] = lambda _context: []
    reads_only: bool = False
    judge: Callable[[Context], None] | None = None


def error(sqlstate: str, message: str) -> asyncpg.PostgresError:
    """Return the error that Postgres would send."""
    known: dict[str, type[asyncpg.PostgresError]] = {
        "23505": asyncpg.UniqueViolationError,
        "23514": asyncpg.CheckViolationError,
        "40P01": asyncpg.DeadlockDetectedError,
        "40001": asyncpg.SerializationError,
        "53300": asyncpg.TooManyConnectionsError,
        "55P03": asyncpg.LockNotAvailableError,
        "57014": asyncpg.QueryCanceledError,
        "57P01": asyncpg.AdminShutdownError,
        "57P03": asyncpg.CannotConnectNowError,
        "25P03": asyncpg.IdleInTransactionSessionTimeoutError,
    }
    made = known.get(sqlstate, asyncpg.PostgresError)(message)
    vars(made)["sqlstate"] = sqlstate
    return made


def lease_is_over(lease_until_us: int, now_us: int) -> bool:
    """Return whether a lease is over by the database's clock, or so far ahead that it counts so."""
    return lease_until_us <= now_us or lease_until_us > now_us + LEASE_AHEAD_US
