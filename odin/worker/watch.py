"""Notices a workflow task that keeps the event loop to itself, and says where it stands."""

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

log = logging.getLogger(__name__)


class Watch:
    """A thread beside the event loop; made on the loop's own thread.

    Args:
        standing: Returns since when a workflow task runs (None: none does) and of which run.
        now: The clock of `standing`.
    """

    def __init__(
        self, standing: Callable[[], tuple[float | None, str]], now: Callable[[], float]
    ) -> None:
        self._standing = standing
        self._now = now
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odin watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; returns at once."""
        self._stop.set()

    def _run(self) -> None:
        said: float | None = None
        while not self._stop.wait(_CHECK_SECONDS):
            since, run_id = self._standing()
            if since is None or since == said or self._now() - since < _LIMIT_SECONDS:
                continue
            said = since
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - the documented way
            stack = "".join(traceback.format_stack(frame, 20)) if frame else ""
            log.error("workflow task does not yield", extra={"run_id": run_id, "stack": stack})
