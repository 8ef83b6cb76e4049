"""What can go wrong at the door, beyond the error tree that callers see."""

from __future__ import annotations

import asyncpg

from odin.errors import InternalError, OdinError, OutcomeUnknownError, UnavailableError
from odin.runtime.postgres import WriteOutcome, classify

# What asyncpg lets out when a call fails: the server's word, its own misuse, the network's end.
CALL_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class WriteRaisedError(InternalError):
    """The database refused the write as a whole and rolled it back, for every shard in it.

    `details["sqlstate"]` is its code: OD001 for a count that differs, 23505 for a duplicate, ...
    """

    reason = "WRITE_RAISED"


def write_error(error: BaseException, what: str) -> OdinError:
    """Return what a failed write means: certainly rolled back, or nobody knows."""
    if classify(error) is WriteOutcome.RAISED:
        sqlstate = getattr(error, "sqlstate", None)
        return WriteRaisedError(f"{what} was rolled back: {error}", details={"sqlstate": sqlstate})
    return OutcomeUnknownError(
        f"{what}: nobody knows whether it happened ({type(error).__name__}); begin a new range of "
        "every shard in it, then read"
    )


def read_error(error: BaseException) -> UnavailableError:
    """Return what a failed read means: nothing happened, ask again."""
    return UnavailableError(
        f"the database did not answer a read ({type(error).__name__}: {error})",
        reason="STORE_UNAVAILABLE",
    )
