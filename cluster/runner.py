"""Keeps one part running: starts it, sees when it is ready, starts it again when it ends.

    starting ──ready──▶ running ──ended──▶ waiting | refused ──(backoff)──▶ starting …
        └───────────────── end() ──────────────┴──▶ stopped          done (it may, and returned 0)

A part that ends is started again after a wait that doubles, from 0.5 s to 10 s; 30 s of life set it
back. Exit code 2 is a part's word that it will not start so; it is tried again all the same, since
the reason may pass (a name in use, a database that is not there yet).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING, Final

import aiohttp

from odin.core.backoff import RetryPolicySpec, delay_after
from odin.runtime.clock import pause
from odin.runtime.parent import PARENT_PID
from odin.runtime.service import EXIT_REFUSED_TO_START

from .identity import fingerprint, listens, send
from .logfile import last_words
from .servers.common import Process
from .state import PartPhase, PartState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odin.runtime.clock import Clock

    from .parts import Part

BACKOFF: Final = RetryPolicySpec(initial_interval_ms=500, maximum_interval_ms=10_000)
LIFE_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 0.2
PROBE_TIMEOUT: Final = aiohttp.ClientTimeout(total=2.0)
KILLED_SECONDS: Final = 2.0
_OK: Final = 200

log = logging.getLogger(__name__)


class PartRunner:
    """One part and its present process."""

    def __init__(
        self,
        part: Part,
        log_path: Path,
        clock: Clock,
        on_change: Callable[[PartRunner], None] = lambda _: None,
    ) -> None:
        self.part = part
        self._log_path = log_path
        self._clock = clock
        self._on_change = on_change
        self._process: Process | None = None
        self._told = asyncio.Event()
        self._over = asyncio.Event()
        self._short_lives = 0
        self.ready = asyncio.Event()
        self.refusals = 0
        self.state = PartState(
            name=part.name, kind=part.kind, address=part.address, log=str(log_path)
        )

    @property
    def over(self) -> asyncio.Event:
        """Set once there is no process and there will be none."""
        return self._over

    async def run(self) -> None:
        """Keep the part running until `end` is called, or until it is done."""
        try:
            while not self._told.is_set():
                began = self._clock.boottime()
                code = await self._live_once()
                if self._told.is_set():
                    break
                if code == 0 and self.part.ends:
                    self._change("done")
                    return
                lived_long = self._clock.boottime() - began >= LIFE_SECONDS
                self._short_lives = 0 if lived_long else self._short_lives
                self._short_lives += 1
                self.state.restarts += 1
                await pause(self._clock, self._told, delay_after(self._short_lives, BACKOFF) or 0.0)
            self._change("stopped")
        finally:
            self._over.set()

    async def end(self, grace_seconds: float) -> None:
        """Ask the part to end, kill it after the grace, and return when it is gone."""
        self._told.set()
        if self._process is not None:
            await self._process.end(signal.SIGTERM, grace_seconds)
        async with asyncio.timeout(KILLED_SECONDS):
            await self._over.wait()

    def kill(self) -> None:
        """End the part and everything it started at once; it is not started again."""
        self._told.set()
        if self._process is not None and self._process.running:
            send(self._process.pid, signal.SIGKILL)

    async def _live_once(self) -> int:
        """Start a process, and return its exit code when it has ended."""
        self._process = process = await Process.spawn(
            self.part.command,
            log=self._log_path,
            environ={**self.part.environ, PARENT_PID: str(os.getpid())},
            # At once: whoever outlives the supervisor for an orderly end may hang in it for ever.
            death_signal=signal.SIGKILL,
        )
        self.state.pid, self.state.fingerprint = process.pid, fingerprint(process.pid)
        self.state.started_at = self._clock.wall().isoformat(timespec="seconds")
        self._change("starting")
        code = -int(signal.SIGKILL)
        try:
            if self._told.is_set():
                await process.end(signal.SIGTERM, KILLED_SECONDS)
            async with asyncio.TaskGroup() as group:
                probing = group.create_task(self._probe(), name=f"probe {self.part.name}")
                code = await process.wait()
                probing.cancel()
        finally:
            # Whatever the part itself started must not outlive it, nor the part a cancellation.
            send(process.pid, signal.SIGKILL)
            await process.end(signal.SIGKILL, KILLED_SECONDS)
            self._note_end(code)
        return code

    def _note_end(self, code: int) -> None:
        self.ready.clear()
        self.state.pid, self.state.fingerprint, self.state.exit_code = None, "", code
        if self._told.is_set():
            return
        # Whoever is killed has no last words: its last line is about something else.
        self.state.last_line = last_words(self._log_path) if code >= 0 else ""
        if code == EXIT_REFUSED_TO_START:
            self.refusals += 1
            self._change("refused")
        elif not (code == 0 and self.part.ends):
            self._change("waiting")

    async def _probe(self) -> None:
        while not await self._is_ready():
            await self._clock.sleep(PROBE_SECONDS)
        self.ready.set()
        self._change("running")

    async def _is_ready(self) -> bool:
        if not self.part.port:
            return True
        if self._process is None or not listens(self._process.pid, self.part.port):
            return False
        if not self.part.ready_path:
            return True
        try:
            async with (
                aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session,
                session.get(self.part.address + self.part.ready_path) as answer,
            ):
                return answer.status == _OK
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    def _change(self, phase: PartPhase) -> None:
        self.state.phase = phase
        self._on_change(self)
