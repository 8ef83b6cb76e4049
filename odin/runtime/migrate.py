"""Brings a database to the schema of this code, and tells when it is not there.

Migrations are the files `NNNN_what.sql` of the `schema` folder, forward only. Each runs in a
transaction of its own and is written down with its checksum; an advisory lock lets one process at a
time do it, so that a whole cluster may start at once.

    python -m odin.runtime.migrate [postgresql://...]       (default: ODIN_POSTGRES_DSN)
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import asyncpg

from odin.errors import ConfigurationError, FailedPreconditionError
from odin.runtime import services
from odin.runtime.postgres import Session, connect
from odin.runtime.redaction import redact
from odin.runtime.settings import PostgresSettings, load

if TYPE_CHECKING:
    from pathlib import Path

    from odin.runtime.postgres import Connection

_FILE = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+\.sql\Z")
_LOCK_KEY = 0x6F64696E  # "odin"
_LOCK_WAIT_SECONDS = 60.0

# A migration may take its time, but not while the cluster queues behind a lock that it waits for.
_SESSION = Session(
    idle_in_transaction_timeout=60.0,
    lock_timeout=5.0,
    statement_timeout=600.0,
    command_timeout=610.0,
)

_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
_TABLE_EXISTS = "SELECT to_regclass('schema_migration') IS NOT NULL"
_APPLIED = "SELECT number, name, checksum FROM schema_migration ORDER BY number"
_RECORD = "INSERT INTO schema_migration (number, name, checksum) VALUES ($1, $2, $3)"
_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_UNLOCK = "SELECT pg_advisory_unlock($1)"


class SchemaMismatchError(FailedPreconditionError):
    """The database's schema is not the one that this code was written for."""

    reason = "SCHEMA_MISMATCH"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of the schema folder."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """What tells an edited file from the one that was applied."""
        return sha256(self.text.encode()).hexdigest()


def migrations(folder: Path | None = None) -> list[Migration]:
    """Return the migrations of this installation in order.

    Raises:
        ConfigurationError: there is no folder, a file is misnamed, or numbers are not 1, 2, 3, ...
    """
    folder = folder or services.schema_folder()
    found = []
    for file in sorted(folder.glob("[0-9]*.sql")):
        match = _FILE.match(file.name)
        if not match:
            raise ConfigurationError(f"{file.name} is not the name of a migration (NNNN_what.sql)")
        found.append(Migration(int(match["number"]), file.stem, file.read_text(encoding="utf-8")))
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(numbers) + 1)):
        raise ConfigurationError(f"migrations must count 1, 2, 3, ...; {folder} has {numbers}")
    return found


async def migrate(dsn: str, folder: Path | None = None) -> list[str]:
    """Apply every migration that the database lacks and return their names.

    Raises:
        SchemaMismatchError: the database is newer than this code, or a file was changed after it
            was applied; nothing was done.
        ConfigurationError: as for `migrations`; or another process held the lock for a minute.
        asyncpg.PostgresError: a migration failed; those before it stand, of it nothing does.
    """
    known = migrations(folder)
    connection = await connect(dsn, application_name="odin-migrate", session=_SESSION)
    try:
        await _lock(connection)
        await connection.execute(_CREATE_TABLE)
        applied_count = await _applied_count(connection, known)
        done = []
        for migration in known[applied_count:]:
            async with connection.transaction():
                await connection.execute(migration.text)
                await connection.execute(
                    _RECORD, migration.number, migration.name, migration.checksum
                )
            done.append(migration.name)
        await connection.execute(_UNLOCK, _LOCK_KEY)
        return done
    finally:
        await _close(connection)


async def check(dsn: str, folder: Path | None = None) -> None:
    """Refuse a database whose schema is not exactly that of this code.

    Raises:
        SchemaMismatchError: it is older, newer, or has an applied file that was changed since.
    """
    known = migrations(folder)
    connection = await connect(dsn, application_name="odin-migrate")
    try:
        exists = await connection.fetchval(_TABLE_EXISTS)
        applied_count = await _applied_count(connection, known) if exists else 0
    finally:
        await _close(connection)
    if applied_count < len(known):
        raise SchemaMismatchError(
            f"the database has schema {applied_count}, this code needs {len(known)}: "
            "run `odin migrate` (or python -m odin.runtime.migrate) first",
            details={"database": applied_count, "code": len(known)},
        )


async def _lock(connection: Connection) -> None:
    """Take the migration lock; polls, since a waiting statement would be cut by its own timeout."""
    try:
        async with asyncio.timeout(_LOCK_WAIT_SECONDS):
            while not await connection.fetchval(_TRY_LOCK, _LOCK_KEY):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise ConfigurationError(
            f"another process has been migrating this database for {_LOCK_WAIT_SECONDS:.0f} s; "
            "look for application_name 'odin-migrate' in pg_stat_activity"
        ) from None


async def _applied_count(connection: Connection, known: list[Migration]) -> int:
    """Return how many of `known` the database has: the first ones, unchanged."""
    rows = await connection.fetch(_APPLIED)
    if len(rows) > len(known):
        raise SchemaMismatchError(
            f"the database has schema {len(rows)}, this code knows only {len(known)}: "
            "it is older than the database; run the newer release",
            details={"database": len(rows), "code": len(known)},
        )
    for row, migration in zip(rows, known, strict=False):
        if (row["number"], row["checksum"]) != (migration.number, migration.checksum):
            raise SchemaMismatchError(
                f"migration {migration.name} is not the one that was applied as {row['name']}: an "
                "applied migration must not be edited; restore it and add a new one",
                details={"migration": migration.name},
            )
    return len(rows)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=2)
    except (OSError, asyncpg.InterfaceError):
        connection.terminate()


def main() -> int:
    """Migrate the database named on the command line or in `ODIN_POSTGRES_DSN`."""
    try:
        dsn = sys.argv[1] if len(sys.argv) > 1 else load(PostgresSettings).dsn
        done = asyncio.run(migrate(dsn))
    except (ConfigurationError, FailedPreconditionError, OSError, asyncpg.PostgresError) as error:
        sys.stderr.write(f"migrate: {redact(str(error)) or type(error).__name__}\n")
        return 1
    sys.stdout.write("".join(f"applied {name}\n" for name in done) or "nothing to apply\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
