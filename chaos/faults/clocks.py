"""The wall clock of an engine steps, where the cluster was started with libfaketime."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError
from odin.runtime.telemetry import KEY_PREFIX
from odin.runtime.valkey import ValkeyClient, ValkeyDownError

from .base import Bite
from .undo import Undo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

VARIABLE: Final = b"FAKETIME_TIMESTAMP_FILE="
STEP_SECONDS: Final = 30
RIGHT: Final = "+0"
# Telemetry is written once a second, and the library reads its file about as often.
BLUR_SECONDS: Final = 5


class StepClock:
    """The wall clock goes forth or back by half a minute; spans stay as they are."""

    inject_seconds = 5.0
    verify_seconds = 10.0

    def __init__(self, stage: Stage, engine: str) -> None:
        self._stage = stage
        self._engine = engine
        self._step = stage.dice.choose("step", (-STEP_SECONDS, STEP_SECONDS))
        self._path = Path()

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return f"{self._engine}, by {self._step:+d} s"

    async def prepare(self) -> Sequence[Undo]:
        """Find the file that the engine's library reads."""
        path = faketime_file(self._stage, self._engine)
        if path is None:
            raise FailedPreconditionError(f"{self._engine} runs without libfaketime")
        self._path = path
        return [Undo(kind="write", path=str(path), text=RIGHT)]

    async def inject(self) -> None:
        """Step."""
        await self._write(f"{self._step:+d}")

    async def verify(self) -> Bite:
        """See the step in the time that the engine itself puts on its telemetry."""
        off = 0.0
        ends = self._stage.clock.boottime() + self.verify_seconds
        while self._stage.clock.boottime() < ends:
            off = await self._off()
            if abs(off - self._step) <= BLUR_SECONDS:
                return Bite(is_seen=True, evidence={"off by s": round(off, 1)})
            await self._stage.clock.sleep(0.25)
        return Bite(is_seen=False, evidence={"off by s": round(off, 1)})

    async def heal(self) -> None:
        """Step back."""
        await self._write(RIGHT)

    async def _write(self, text: str) -> None:
        def write() -> None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.write_text(text, encoding="ascii")

        await asyncio.to_thread(write)

    async def _off(self) -> float:
        """Return by how much the engine's time differs from ours, 0 if it tells none."""
        client = ValkeyClient(self._stage.levers.secrets().valkey_url, call_seconds_max=1.0)
        try:
            async with client.call() as valkey:
                told = await valkey.hget(f"{KEY_PREFIX}engine:{self._engine}", "at_ms")
        except ValkeyDownError:
            return 0.0
        finally:
            await client.close()
        return int(told) / 1_000 - self._stage.clock.wall().timestamp() if told else 0.0


def faketime_file(stage: Stage, engine: str) -> Path | None:
    """Return the file by which an engine's clock is told what to say; None if it has none."""
    pid = stage.part(engine).pid
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = next((one for one in environ if one.startswith(VARIABLE)), None)
    return None if found is None else Path(found.removeprefix(VARIABLE).decode())
