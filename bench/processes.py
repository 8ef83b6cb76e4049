"""Child processes of the benchmark: started with a log, ended with everything below them."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from odin.errors import UnavailableError
from odin.runtime.parent import PARENT_PID

TAIL_LINES: Final = 12
LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class ProcessEndedError(UnavailableError):
    """A process that the benchmark needs has ended or said something else than expected."""

    reason = "PROCESS_ENDED"


class Child:
    """One child process in a session of its own, so that Ctrl-C reaches only the benchmark.

    Attributes:
        name: Names its log.
    """

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line(self, timeout_seconds: float) -> bytes:
        """Return the next line that it writes.

        Raises:
            ProcessEndedError: It ended instead, or took too long.
        """
        assert self._process.stdout is not None  # noqa: S101 - it was made with a pipe
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise self.failure(f"said nothing for {timeout_seconds:.0f} s") from None
        if not line:
            raise self.failure("ended")
        return line

    async def tell(self, line: bytes) -> None:
        """Write to its standard input.

        Raises:
            ProcessEndedError: It does not read any more.
        """
        assert self._process.stdin is not None  # noqa: S101 - it was made with a pipe
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        except ConnectionError:
            raise self.failure("ended") from None

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            ProcessEndedError: It has.
        """
        if self._process.returncode is not None:
            raise self.failure(f"ended with {self._process.returncode}")

    def failure(self, what: str) -> ProcessEndedError:
        """Return the error that says what happened, with the end of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return ProcessEndedError("\n".join([f"{self.name} {what}", *lines]))

    async def end(self, grace_seconds: float) -> None:
        """Ask it to end, and kill its whole session if it has not after the grace."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)


@asynccontextmanager
async def child(
    name: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    grace_seconds: float,
    *,
    talks: bool = False,
) -> AsyncIterator[Child]:
    """Run a command for the length of the block; it ends too if this process is killed.

    Args:
        name: Names its log.
        command: The program and its arguments.
        environ: Its environment, to which the parent's process id is added.
        folder: Where its log goes.
        grace_seconds: How long its orderly end may take.
        talks: Whether `Child.line` and `Child.tell` are used; else all output goes to the log.
    """
    log = folder / f"{name}.log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE if talks else DEVNULL,
            stdout=PIPE if talks else file,
            stderr=file,
            env={**environ, PARENT_PID: str(os.getpid())},
            start_new_session=True,
            limit=LINE_BYTES_MAX,
        )
    found = Child(name, process, log)
    try:
        yield found
    finally:
        await found.end(grace_seconds)
