"""Notices soon that nothing comes back on a link on which something is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ASKED_SECONDS: Final = 1.5
"""A link on which something is asked is silent after so long, although it was pinged."""
_TICK_SECONDS: Final = 0.5


class Silence:
    """Ticks while something is asked, and not otherwise.

    Args:
        heard: Counts what has arrived, whatever it is.
        asked: Counts what waits for an answer.
        ping: Asks for any sign of life.
        give_up: Called once it was silent for too long.
    """

    def __init__(
        self,
        heard: Callable[[], int],
        asked: Callable[[], int],
        ping: Callable[[], object],
        give_up: Callable[[], None],
    ) -> None:
        self._heard = heard
        self._asked = asked
        self._ping = ping
        self._give_up = give_up
        self._next: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Something is asked."""
        if self._next is None:
            self._again(0.0)

    def end(self) -> None:
        """Watch no more."""
        if self._next is not None:
            self._next.cancel()

    def _again(self, silent: float) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(_TICK_SECONDS, self._tick, self._heard(), silent)

    def _tick(self, seen: int, silent: float) -> None:
        self._next = None
        if not self._asked():
            return
        silent = 0.0 if self._heard() != seen else silent + _TICK_SECONDS
        if silent >= ASKED_SECONDS:
            self._give_up()
            return
        if silent == _TICK_SECONDS:
            self._ping()
        self._again(silent)
