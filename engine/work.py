"""Coroutines that are started along the way.

They have an owner, a bound, and end with the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from odin.errors import OdinError

log = logging.getLogger(__name__)


class Work:
    """Runs what handlers start and cannot await. A failure is logged; the engine goes on."""

    def __init__(self) -> None:
        self._waiting: list[Coroutine[Any, Any, None]] = []
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.running_count = 0

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine` soon; it is cancelled when the engine stops."""
        if self._group is None:
            self._waiting.append(coroutine)
        else:
            self._begin(coroutine)

    async def run(self, stop: asyncio.Event) -> None:
        """Own what is started until told to stop; then cancel what still runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for coroutine in self._waiting:
                self._begin(coroutine)
            self._waiting.clear()
            holder = group.create_task(stop.wait(), name="work until stop")
            await asyncio.wait({holder})
            self._group = None
            for task in list(self._tasks):
                task.cancel()

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None  # noqa: S101 - the callers have looked
        task = self._group.create_task(self._guarded(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.running_count += 1
        try:
            await coroutine
        except OdinError as error:
            log.info("work ended early", extra={"reason": error.reason, "detail": str(error)})
        except Exception:
            log.exception("work failed")
        finally:
            self.running_count -= 1
