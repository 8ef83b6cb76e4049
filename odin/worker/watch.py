"""Notices what keeps the event loop to itself, and says where it stands.

While a workflow task or an async activity does not yield, nothing else of the worker runs: no
heartbeat, no report. A thread beside the loop sees that and logs the stack.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_CHECK_SECONDS: Final = 0.5
_LIMIT_SECONDS: Final = 2.0
_FRAMES_MAX: Final = 20

log = logging.getLogger(__name__)


class Watch:
    """A thread beside the event loop; made on the loop's own thread.

    Args:
        now: Seconds that only go forward.
        run_id: Returns the run whose workflow task runs now, or "".
    """

    def __init__(self, now: Callable[[], float], run_id: Callable[[], str]) -> None:
        self._now = now
        self._run_id = run_id
        self._turned_at = now()
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odin watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._turned_at = self._now()
        self._thread.start()

    def turned(self) -> None:
        """The loop has had a turn; call it several times a second."""
        self._turned_at = self._now()

    def stop(self) -> None:
        """Stop watching; returns at once."""
        self._stop.set()

    def _run(self) -> None:
        said: float | None = None
        while not self._stop.wait(_CHECK_SECONDS):
            since = self._turned_at
            held_up = self._now() - since
            if since == said or held_up < _LIMIT_SECONDS:
                continue
            said = since
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - the documented way
            stack = "".join(traceback.format_stack(frame, _FRAMES_MAX)) if frame else ""
            run_id = self._run_id()
            what = "a workflow task does not yield" if run_id else "the event loop is held up"
            log.error(what, extra={"run_id": run_id, "seconds": round(held_up, 1), "stack": stack})
