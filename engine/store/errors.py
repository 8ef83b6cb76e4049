"""What can go wrong at the door, beyond the error tree that callers see."""

from __future__ import annotations

import asyncpg

from odin.errors import (
    FailedPreconditionError,
    InternalError,
    OdinError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from odin.runtime.postgres import WriteOutcome, classify

from .condition import READ_ONLY, detail_of, sqlstate_of, unavailable

# What asyncpg lets out when a call fails: the server's word, its own misuse, the network's end.
CALL_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


# Classes of SQLSTATE that say nothing of what was asked: no connection, a rollback for the sake of
# others, resources, a lock that was not to be had, an operator's hand.
_PASSING = frozenset({"08", "40", "53", "55", "57"})


class NotConnectedError(ConnectionError):
    """There was no connection to be had: what was to be sent on it was not sent.

    `sqlstate` is what the server said, or stands for the network's word.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(detail_of(error))
        self.sqlstate = sqlstate_of(error)


class WriteRaisedError(InternalError):
    """Nothing of the write happened: the database rolled it back, for every shard in it.

    `details["sqlstate"]` is its code: OD001 for a count that differs, 23505 for a duplicate, ...
    It is `retryable` if the same write may well go through later.
    """

    reason = "WRITE_RAISED"

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message, details={"sqlstate": sqlstate})
        self.sqlstate = sqlstate or ""
        self.retryable = _passes(self.sqlstate)


class WriteNotSentError(WriteRaisedError):
    """Nothing of the write happened: there was no connection to send it on."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message, sqlstate=sqlstate)
        self.retryable = True


class DamagedRunError(FailedPreconditionError):
    """The row of this one run cannot be read; every other run goes on."""

    reason = "RUN_DAMAGED"

    def __init__(self, shard_id: int, run_id: str, why: str) -> None:
        super().__init__(
            f"the row of run {run_id} (shard {shard_id}) cannot be read: {why}; repair it from a"
            " backup, or delete it with its events",
            details={"run_id": run_id, "shard_id": shard_id},
        )


def write_error(error: BaseException, what: str) -> OdinError:
    """Return what a failed write means: certainly rolled back, or nobody knows."""
    if isinstance(error, NotConnectedError):
        return WriteNotSentError(f"{what} was not sent: {error}", sqlstate=error.sqlstate)
    if classify(error) is WriteOutcome.RAISED:
        sqlstate = getattr(error, "sqlstate", None)
        return WriteRaisedError(f"{what} was rolled back: {error}", sqlstate=sqlstate)
    return OutcomeUnknownError(
        f"{what}: nobody knows whether it happened ({type(error).__name__}); begin a new range of "
        "every shard in it, then read"
    )


def is_passing(error: asyncpg.PostgresError) -> bool:
    """Return whether the error says nothing of what was asked: it may go well the next time."""
    return _passes(error.sqlstate or "")


def _passes(sqlstate: str) -> bool:
    return sqlstate[:2] in _PASSING or sqlstate == READ_ONLY


def read_error(error: BaseException) -> StoreUnavailableError:
    """Return what a failed read means: nothing happened, ask again."""
    return unavailable(sqlstate_of(error), f"no answer to a read: {detail_of(error)}")
