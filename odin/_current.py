"""Which run's code this thread runs now."""

from __future__ import annotations

from odin.core.loop import running_loop
from odin.core.run import Run


class NotInWorkflowError(RuntimeError):
    """Something that only workflow code can do was asked for elsewhere."""


def current_run() -> Run:
    """Return the run whose code calls.

    Raises:
        NotInWorkflowError: No workflow runs on this thread.
    """
    run = current_run_or_none()
    if run is None:
        raise NotInWorkflowError("this can only be called from the code of a workflow")
    return run


def current_run_or_none() -> Run | None:
    """Return the run whose code calls, or None outside of workflow code."""
    loop = running_loop()
    return loop.host if loop is not None else None  # type: ignore[return-value] # a loop's host is its Run
