"""`python -m cluster.servers.schema FILE`: write the schema that all migrations add up to.

A reviewer reads one file and not the sum of many. It is made by Postgres itself, from a database
of a server that lives only as long as this takes.
"""

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from odin.runtime.migrate import migrate

from .common import run
from .postgres import PostgresServer, programs

_DUMP_SECONDS = 60
# Versions, settings of the session, and a random word that differs with every dump.
_NOISE = re.compile(
    r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.MULTILINE
)


async def current_schema() -> str:
    """Return the statements that make an empty database what the migrations make of it.

    Raises:
        ServerError: Postgres could not be started, or could not tell.
    """
    with tempfile.TemporaryDirectory(prefix="odin-schema-") as folder:
        async with PostgresServer(Path(folder) / "postgres", os.environ) as server:
            await migrate(server.url)
            dump = [str(programs() / "pg_dump"), "--schema-only", "--no-owner"]
            text = await run(dump, _address(server.url), _DUMP_SECONDS)
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def _address(url: str) -> dict[str, str]:
    """Return the address as variables: what stands in arguments, everybody on the machine sees."""
    parts = urlsplit(url)
    return {
        "PATH": os.defpath,
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port),
        "PGUSER": parts.username or "",
        "PGPASSWORD": parts.password or "",
        "PGDATABASE": parts.path.lstrip("/"),
    }


def main() -> int:
    """Write the file named on the command line."""
    Path(sys.argv[1]).write_text(asyncio.run(current_schema()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
