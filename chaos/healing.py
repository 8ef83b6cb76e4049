"""The undoing of what an experiment has on record, by its runner or by whoever comes after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError, OdinError

from .faults.stage import NoClusterError
from .faults.undo import undo
from .running import forget_running, read_running

if TYPE_CHECKING:
    from .faults.levers import Reach

HEAL_SECONDS: Final = 45.0


class NotHealedError(FailedPreconditionError):
    """Something that an experiment broke is still broken."""

    reason = "NOT_HEALED"


def said(error: Exception) -> str:
    """Return an error in words; a time-out has none of its own."""
    return str(error) or "no time"


async def replayed(levers: Reach, api_key: str | None) -> list[str]:
    """Undo what is on record, and forget it; return what could not be undone (it stays)."""
    running = read_running(levers.folder)
    if running is None:
        return []
    wrong = []
    try:
        await levers.refresh()
    except NoClusterError:
        pass  # what has been taken down needs nothing; each step finds out for itself
    except OdinError as error:
        wrong.append(f"the cluster cannot be looked at: {error}")
    for step in running.undo:
        try:
            async with asyncio.timeout(HEAL_SECONDS):
                await undo(step, levers, api_key)
        except (OdinError, TimeoutError, OSError) as error:
            wrong.append(f"{step.kind}: {said(error)}")
    if not wrong:
        forget_running(levers.folder)
    return wrong
