"""What the three servers share: a child process that ends with its owner, ports, secrets.

A server is started by one process, its owner, and must not outlive it: a test run that is killed
would otherwise leave a Postgres behind for every try. The kernel sends each child a signal when the
thread that made it ends (`PR_SET_PDEATHSIG`), set by a few lines that run between fork and the
server's own program. Where there is no such call, the child ends only when it is stopped by pid.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

LOOPBACK = "127.0.0.1"

_POLL_SECONDS = 0.03
_LOG_TAIL_LINES = 15

# argv: death signal, the owner's pid or 0 where it cannot be told, the program and its arguments.
# The owner may have ended before the call was made: then the parent is already another one.
_GUARD = """
import ctypes, os, sys
death_signal, owner = int(sys.argv[1]), int(sys.argv[2])
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl is not None:
    prctl(1, death_signal, 0, 0, 0)
if owner and os.getppid() != owner:
    sys.exit("the owner of this process has ended")
os.execvp(sys.argv[3], sys.argv[3:])
"""


class ServerError(RuntimeError):
    """A server could not be set up, started or stopped; `advice` is the one thing to do next."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}\n{advice}" if advice else message)
        self.advice = advice


class Process:
    """A child process in a session of its own that ends when its owner ends."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str],
        death_signal: signal.Signals,
        wrapper: Sequence[str] = (),
    ) -> Self:
        """Start `command`, its output appended to `log`.

        Args:
            command: the program and its arguments.
            log: file that takes standard output and standard error.
            environ: the whole environment of the child.
            death_signal: what the kernel sends the child when its owner ends.
            wrapper: a command that runs another one in its own place, such as `unshare`.
        """
        guard = [sys.executable, "-I", "-S", "-c", _GUARD, str(int(death_signal)), str(os.getpid())]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *wrapper,
                *guard,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The process id: the guard and the wrappers replace themselves, so it is the server's."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended, as far as this owner has noticed."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for the end and return the exit code, the negative of a signal's number for one."""
        return await self._process.wait()

    async def end(self, number: signal.Signals, grace_seconds: float) -> None:
        """Send the signal, wait for the end, and kill what is still there after the grace."""
        if self.running:
            self._send(number)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            self._send(signal.SIGKILL)
            await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            return

    async def until_ready(
        self, probe: Callable[[], Awaitable[bool]], timeout_seconds: float, what: str
    ) -> None:
        """Wait until the probe says yes.

        Raises:
            ServerError: the process ended, or the time is up; the message ends with its log.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.running:
                    if await probe():
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise ServerError(
                f"{what} was not ready in {timeout_seconds:.0f} s\n{self.log_tail()}"
            ) from error
        raise ServerError(f"{what} ended while it started\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of the log, for an error message."""
        if not self._log.exists():
            return ""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])


class Server(ABC):
    """One server with a life cycle: `async with` starts it and stops it.

    `restart` keeps port, password and data. `kill` is the end without a farewell (SIGKILL); the
    next `start` finds whatever had been written by then.
    """

    name: str

    @property
    @abstractmethod
    def url(self) -> str:
        """The address with credentials. A secret: never log it."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The server's process id, None while it does not run or runs elsewhere."""

    @abstractmethod
    async def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            ServerError: it could not be started.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop it in order and wait for its end; stopping twice is no error."""

    @abstractmethod
    async def kill(self) -> None:
        """End it at once and wait for its end."""

    async def restart(self) -> None:
        """Stop it, then start it on the same port with the same data."""
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # a start that fails or is cancelled must leave nothing running
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()


class ExternalServer(Server):
    """A server that somebody else runs: only its address is known, and nothing of it is touched."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = url

    @property
    def url(self) -> str:
        """The address as it was given."""
        return self._url

    @property
    def pid(self) -> int | None:
        """Always None: the process is not ours."""
        return None

    async def start(self) -> None:
        """Do nothing: it runs, or the first use of it says otherwise."""

    async def stop(self) -> None:
        """Do nothing: it is not ours to stop."""

    async def kill(self) -> None:
        """Refuse.

        Raises:
            ServerError: always.
        """
        raise ServerError(f"the {self.name} server is not ours: it cannot be killed from here")

    async def restart(self) -> None:
        """Refuse.

        Raises:
            ServerError: always.
        """
        raise ServerError(f"the {self.name} server is not ours: it cannot be restarted from here")


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


async def accepts(port: int) -> bool:
    """Return whether somebody accepts connections on the loopback port."""
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


def secret_file(path: Path, length_bytes: int = 24) -> str:
    """Return the secret kept in the file, made at the first call; only the owner may read it."""
    if not path.exists():
        write_private(path, secrets.token_hex(length_bytes))
    return path.read_text(encoding="ascii").strip()


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def private_folder(path: Path) -> Path:
    """Return the folder, made with access for its owner alone."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


def base_environ(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the little of the environment that a server needs: no setting of another one leaks."""
    kept = {key: environ[key] for key in ("PATH", "TZ", "TMPDIR") if key in environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **kept, "HOME": str(home)}


async def run(command: Sequence[str], environ: Mapping[str, str], timeout_seconds: float) -> str:
    """Run a command to its end and return its output.

    Raises:
        ServerError: it failed or took too long.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environ),
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise ServerError(f"{command[0]} took more than {timeout_seconds:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = output.decode(errors="replace")
    if process.returncode != 0:
        raise ServerError(f"{command[0]} ended with {process.returncode}\n{text[-2000:]}")
    return text
