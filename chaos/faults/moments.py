"""Moments at which a death hurts most: each a look that says whether it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odin.errors import OdinError
from odin.runtime.telemetry import read_telemetry

if TYPE_CHECKING:
    from .stage import Stage

RUNNING: Final = "activities_running"


async def runs_activities(stage: Stage, worker: str) -> dict[str, Any] | None:
    """Whether a worker tells that it runs activities."""
    try:
        told = await read_telemetry(stage.levers.secrets().valkey_url)
    except OdinError:
        return None
    running = next((one.gauges.get(RUNNING, 0) for one in told if one.node == worker), 0)
    return {RUNNING: int(running)} if running else None


async def has_unconfirmed(stage: Stage, engine: str) -> dict[str, Any] | None:
    """Whether rows of an engine's shards wait for confirms, while none gets through."""
    try:
        shards = await stage.books.owned([engine])
        [row] = await stage.books.fetch("read_outbox", shards)
    except OdinError:
        return None
    if not int(row["depth"]) or float(row["oldest_seconds"]) < 1:
        return None
    return {"rows without a confirm": int(row["depth"]), "oldest s": float(row["oldest_seconds"])}
