"""Commands as steps: bounded, logged, and ended when the step is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TAIL_CHARACTERS: Final = 2_000
# How long what a command has started may go on when the command itself is ended: podman in the
# middle of starting a container would leave a network interface that nothing takes down later.
GRACE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


class SmokeError(Exception):
    """Something did not go as it must; the message says what, and where to look."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote to both streams."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs commands, and writes down what they say.

    Attributes:
        log: The file that everything goes to.
        environ: The environment of every command.
        folder: Where they run.
        hidden: Texts that must not get into the log.
        grace_seconds: How long a command that is ended may take to come to an end.
    """

    log: Path
    environ: Mapping[str, str]
    folder: Path
    hidden: list[str] = field(default_factory=list)
    grace_seconds: float = GRACE_SECONDS

    async def run(
        self, *command: str, seconds: float, extra: Mapping[str, str] | None = None
    ) -> str:
        """Run a command to its end and return its output, without a line end.

        Raises:
            SmokeError: it failed, or took longer than `seconds`.
        """
        ended = await self.attempt(*command, seconds=seconds, extra=extra)
        if ended.code != 0:
            tail = ended.output[-TAIL_CHARACTERS:]
            raise SmokeError(f"{self._shown(command)} ended with {ended.code}\n{tail}")
        return ended.output

    async def attempt(
        self, *command: str, seconds: float, extra: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a command to its end, whatever that is.

        Raises:
            SmokeError: it took longer than `seconds`.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self.environ, **(extra or {})},
            cwd=self.folder,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            raise SmokeError(f"{self._shown(command)} took more than {seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                await self._end(process)
        text = output.decode(errors="replace").rstrip()
        self.note(f"$ {self._shown(command)}\n{text}\n[{process.returncode}]")
        return Ended(process.returncode or 0, text)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Tell a command to end, let what it has started finish, then kill what is left."""
        process.terminate()
        try:
            async with asyncio.timeout(self.grace_seconds):
                await process.wait()
                while _is_there(process.pid):  # noqa: ASYNC110 - grandchildren tell no event
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def note(self, text: str) -> None:
        """Append to the log."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(self._without_secrets(text) + "\n")

    def _shown(self, command: Sequence[str]) -> str:
        return self._without_secrets(" ".join(command))

    def _without_secrets(self, text: str) -> str:
        for secret in self.hidden:
            text = text.replace(secret, "***")
        return text


def _is_there(group: int) -> bool:
    """Return whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
