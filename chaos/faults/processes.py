"""Faults of processes: killed, standing still, starved, told to end one after the other."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .base import Bite
from .undo import CLUSTER, Undo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .stage import Stage

# A server that was killed is seen within this by its supervisor's look at it.
GONE_SECONDS: Final = 5.0
ROLL_SECONDS: Final = 40.0
MOMENT_SECONDS: Final = 10.0
# One slice of ten a second: a tenth of the time runs.
RUNS_SECONDS: Final = 0.05
STANDS_SECONDS: Final = 0.45
# The cluster's record heals a little after the runner does, if the runner dies.
MARGIN_SECONDS: Final = 5.0


Moment: TypeAlias = "Callable[[Stage, str], Awaitable[dict[str, Any] | None]]"
"""(cluster, part) → what shows that the moment has come; None while it has not."""


class Kill:
    """SIGKILL; the supervisor starts the parts again."""

    inject_seconds = MOMENT_SECONDS + 10.0
    verify_seconds = GONE_SECONDS

    def __init__(self, stage: Stage, names: Sequence[str], when: Moment | None = None) -> None:
        """Remember whom to kill, and at which moment; at once if none is given."""
        self._stage = stage
        self._names = names
        self._when = when
        self._moment: dict[str, Any] | None = None
        self._before: list[tuple[str, int | None, str]] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return ", ".join(self._names)

    async def prepare(self) -> Sequence[Undo]:
        """Note who is to die: the dead need no healing."""
        parts = [self._stage.part(name) for name in self._names]
        self._before = [(one.name, one.pid, one.fingerprint) for one in parts]
        return []

    async def inject(self) -> None:
        """Kill them at the moment that was asked for, or when it has not come in time."""
        if self._when is not None:
            ends = self._stage.clock.boottime() + MOMENT_SECONDS
            while self._moment is None and self._stage.clock.boottime() < ends:
                self._moment = await self._when(self._stage, self._names[0])
                await self._stage.clock.sleep(0.02)
        self._stage.levers.breaker.kill(self._names)

    async def verify(self) -> Bite:
        """See that the very processes are gone."""

        def left() -> list[str]:
            is_same = self._stage.levers.is_same
            return [name for name, pid, mark in self._before if is_same(pid, mark)]

        gone = await self._stage.until(lambda: not left(), GONE_SECONDS)
        pids = {name: pid for name, pid, _ in self._before}
        is_right = self._when is None or self._moment is not None
        evidence = {"killed": pids, "still there": left(), "at": self._moment or "any moment"}
        return Bite(gone and is_right, evidence)

    async def heal(self) -> None:
        """Leave it to the supervisor."""


class Pause:
    """SIGSTOP to parts with all of their processes, then SIGCONT."""

    inject_seconds = 10.0
    verify_seconds = 5.0

    def __init__(self, stage: Stage, names: Sequence[str]) -> None:
        self._stage = stage
        self._names = names
        self._stopped: list[tuple[int, str]] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return ", ".join(self._names)

    async def prepare(self) -> Sequence[Undo]:
        """The cluster's own record holds the processes."""
        return [CLUSTER]

    async def inject(self) -> None:
        """Stop them."""
        seconds = self._stage.seconds + MARGIN_SECONDS
        self._stopped = self._stage.levers.breaker.freeze(self._names, seconds).processes

    async def verify(self) -> Bite:
        """See the kernel's word for every process: T."""

        def states() -> dict[str, str]:
            return {str(pid): run_state(pid) for pid, _ in self._stopped}

        seen = await self._stage.until(lambda: set(states().values()) == {"T"}, 5.0)
        return Bite(seen, {"states": states()})

    async def heal(self) -> None:
        """Continue them."""
        await self._stage.levers.breaker.heal(lambda one: one.kind == "frozen")


class Starve:
    """SIGSTOP and SIGCONT in turn, so that a tenth of the time runs."""

    inject_seconds = 10.0
    verify_seconds = 8.0

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._processes: list[tuple[int, str]] = []
        self._beating: asyncio.Task[None] | None = None

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return self._name

    async def prepare(self) -> Sequence[Undo]:
        """The cluster's own record will hold the processes."""
        return [CLUSTER]

    async def inject(self) -> None:
        """Begin to stop and continue it."""
        seconds = self._stage.seconds + MARGIN_SECONDS
        broken = self._stage.levers.breaker.guard([self._name], seconds)
        self._processes = broken.processes
        self._beating = self._stage.begin(self._beat(seconds), f"starve {self._name}")

    async def _beat(self, seconds: float) -> None:
        clock = self._stage.clock
        ends = clock.boottime() + seconds
        try:
            while clock.boottime() < ends:
                self._send(signal.SIGSTOP)
                await clock.sleep(STANDS_SECONDS)
                self._send(signal.SIGCONT)
                await clock.sleep(RUNS_SECONDS)
        finally:
            self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for pid, mark in self._processes:
            if self._stage.levers.is_same(pid, mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    async def verify(self) -> Bite:
        """See it stand and run in turn, mostly standing."""
        pid = self._processes[0][0]
        seen: list[str] = []
        for _ in range(60):
            seen.append(run_state(pid))
            await self._stage.clock.sleep(0.05)
        standing = seen.count("T")
        is_seen = standing > len(seen) // 2 and standing < len(seen)
        return Bite(is_seen, {"looks": len(seen), "standing": standing})

    async def heal(self) -> None:
        """Let it run."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        self._send(signal.SIGCONT)
        await self._stage.levers.breaker.heal(lambda one: one.kind == "frozen")


class Roll:
    """SIGTERM to each part in turn, the next when the one before is back: a deploy."""

    verify_seconds = 5.0

    def __init__(self, stage: Stage, names: Sequence[str]) -> None:
        self._stage = stage
        self._names = names
        self._took: dict[str, float] = {}
        self._late: list[str] = []
        self.inject_seconds = ROLL_SECONDS * len(names)

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return ", ".join(self._names)

    async def prepare(self) -> Sequence[Undo]:
        """Whoever ends is started again: nothing to undo."""
        return []

    async def inject(self) -> None:
        """Tell one after the other to end."""
        for name in self._names:
            before, began = self._stage.part(name).restarts, self._stage.clock.boottime()
            self._stage.levers.breaker.restart([name])

            def is_back(name: str = name, before: int = before) -> bool:
                part = self._stage.part(name)
                return part.restarts > before and part.phase == "running"

            if not await self._stage.until(is_back, ROLL_SECONDS - 1):
                self._late.append(name)
            self._took[name] = round(self._stage.clock.boottime() - began, 2)

    async def verify(self) -> Bite:
        """Every one of them has been started again."""
        is_seen = not self._late and len(self._took) == len(self._names)
        return Bite(is_seen, {"seconds until back": self._took, "not back": self._late})

    async def heal(self) -> None:
        """Leave it to the supervisor."""


def run_state(pid: int) -> str:
    """Return the kernel's word for the state of a process (S, R, T, …); "gone" if there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return status.rpartition(")")[2].split()[0]
