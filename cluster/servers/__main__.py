"""`python -m cluster.servers`: start the three servers, print their addresses, stay until stopped.

The addresses are printed as shell lines, and written with `--env FILE` to a file that only its
owner may read, since they carry the passwords. `--prepare` only makes sure that the programs are
there, which may install a package, and ends.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from odin.runtime.parent import ParentWatch

from .common import ServerError, write_private
from .group import ServerSet
from .rabbitmq import URL_VARIABLE, ensure_installed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM and return the exit code."""
    parser = argparse.ArgumentParser(prog="cluster.servers", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".odin/servers"), help="data folder")
    parser.add_argument("--env", type=Path, help="also write the addresses to this file")
    parser.add_argument("--prepare", action="store_true", help="install what is missing and end")
    given = parser.parse_args(arguments)
    work = prepare(os.environ) if given.prepare else serve(given.folder, given.env)
    code = 0
    try:
        asyncio.run(work)
    except* ServerError as failed:
        sys.stderr.write("".join(f"{error}\n" for error in _leaves(failed)))
        code = 1
    return code


async def prepare(environ: Mapping[str, str]) -> None:
    """Make sure that the one program that no wheel brings is there, unless a broker is named.

    Raises:
        ServerError: it is not, and cannot be installed.
    """
    if not (environ.get(URL_VARIABLE) or environ.get("ODIN_TEST_RABBITMQ")):
        await ensure_installed(environ)


async def serve(folder: Path, env_file: Path | None) -> None:
    """Start the servers, tell their addresses, wait for a signal, stop the servers.

    Raises:
        ExceptionGroup: of `ServerError`, one for each server that did not start.
    """
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
        # Whoever starts this for itself alone names itself: its end must not leave servers behind.
        watch = ParentWatch.from_environment()
        await (stop.wait() if watch is None else watch(stop))


def exports(servers: ServerSet) -> str:
    """Return the addresses as shell lines, under the names that the tests read."""
    names = {
        "ODIN_TEST_POSTGRES": servers.postgres.url,
        "ODIN_TEST_RABBITMQ": servers.rabbitmq.url,
        "ODIN_TEST_VALKEY": servers.valkey.url,
    }
    return "".join(f"export {name}='{url}'\n" for name, url in names.items())


def _leaves(group: BaseExceptionGroup[ServerError]) -> Iterable[ServerError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main())
