"""Commands as steps: bounded, logged, and ended when the step is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TAIL_CHARACTERS: Final = 2_000
GRACE_SECONDS: Final = 5.0


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
    """

    log: Path
    environ: Mapping[str, str]
    folder: Path
    hidden: list[str] = field(default_factory=list)

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
            await _end(process)
        text = output.decode(errors="replace").rstrip()
        self.note(f"$ {self._shown(command)}\n{text}\n[{process.returncode}]")
        return Ended(process.returncode or 0, text)

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


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a command that is still there, with whatever it has started."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
        except ProcessLookupError:
            return
        except TimeoutError:
            continue
        return
