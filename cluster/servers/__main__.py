"""`python -m cluster.servers`: start the three servers, print their addresses, stay until stopped.

The addresses are printed as shell lines, and written with `--env FILE` to a file that only its
owner may read, since they carry the passwords.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from .common import write_private
from .group import ServerSet


def main() -> None:
    """Run until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="cluster.servers", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".odin/servers"), help="data folder")
    parser.add_argument("--env", type=Path, help="also write the addresses to this file")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.folder, arguments.env))


async def serve(folder: Path, env_file: Path | None) -> None:
    """Start the servers, tell their addresses, wait for a signal, stop the servers."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with ServerSet(folder, os.environ) as servers:
        text = exports(servers)
        if env_file is not None:
            write_private(env_file, text)
        sys.stdout.write(text)
        sys.stdout.flush()
        await stop.wait()


def exports(servers: ServerSet) -> str:
    """Return the addresses as shell lines, under the names that the tests read."""
    names = {
        "ODIN_TEST_POSTGRES": servers.postgres.url,
        "ODIN_TEST_RABBITMQ": servers.rabbitmq.url,
        "ODIN_TEST_VALKEY": servers.valkey.url,
    }
    return "".join(f"export {name}='{url}'\n" for name, url in names.items())


if __name__ == "__main__":
    main()
