"""Where in the author's code something happened: `file:line`, past odin's and asyncio's frames."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType


def _is_internal(frame: FrameType) -> bool:
    """Return whether a frame is odin's or asyncio's; the services beside odin are authors."""
    name: str = frame.f_globals.get("__name__", "")
    if name.startswith("odin."):
        return not name.startswith("odin.services.")
    return name == "asyncio" or name.startswith("asyncio.")


def caller() -> str:
    """Return the author's line that led to this call."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to see who calls
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def of_traceback(tb: TracebackType | None) -> str:
    """Return the innermost line of the author's code in a traceback."""
    where = ""
    while tb is not None:
        if not _is_internal(tb.tb_frame):
            where = f"{tb.tb_frame.f_code.co_filename}:{tb.tb_lineno}"
        tb = tb.tb_next
    return where


def of_coroutine(coro: Any) -> str:  # noqa: ANN401 - a coroutine or anything that it awaits
    """Return the line at which a suspended coroutine stands."""
    where = ""
    while coro is not None:
        frame: FrameType | None = (
            getattr(coro, "cr_frame", None)
            or getattr(coro, "gi_frame", None)
            or getattr(coro, "ag_frame", None)
        )
        if frame is not None and not _is_internal(frame):
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        coro = (
            getattr(coro, "cr_await", None)
            or getattr(coro, "gi_yieldfrom", None)
            or getattr(coro, "ag_await", None)
        )
    return where
