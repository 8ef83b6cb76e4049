"""Clocks, handed to everything that needs one, so that a simulation can bring its own.

Three kinds of time exist in odin and must not be mixed:

- the *database's* clock decides who may take a lease and stamps events;
- *boottime* measures spans inside one process: leases, deadlines, delays. It is CLOCK_BOOTTIME,
  which, unlike CLOCK_MONOTONIC, keeps counting while the machine is suspended: a lease must not
  look fresh after a laptop was closed for a minute;
- the *wall* clock is shown to people, and decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come; nothing happens if it has."""
        ...


class Clock(Protocol):
    """What a part of odin may know of time."""

    def boottime(self) -> float:
        """Return seconds since some fixed instant; never steps, counts through suspend."""
        ...

    def wall(self) -> datetime:
        """Return the time of day as an aware UTC datetime; for display only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have the running loop call `callback` after at least `seconds`."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def boottime(self) -> float:
        """Return CLOCK_BOOTTIME in seconds (CLOCK_MONOTONIC where a system has no other)."""
        return time.clock_gettime(_SPAN_CLOCK)

    def wall(self) -> datetime:
        """Return the machine's time of day, UTC."""
        return datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have the running loop call `callback` after at least `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)


_SPAN_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


async def pause(clock: Clock, stop: asyncio.Event, seconds: float) -> bool:
    """Wait `seconds`, or less if `stop` is set meanwhile.

    The form of every wait in a long-lived loop: `while not await pause(clock, stop, 3.0): ...`.

    Returns:
        Whether `stop` is set.
    """
    if stop.is_set():
        return True
    # A timer that ends the wait as `asyncio.timeout` does, but by the clock: no task, no future.
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a pause outside of a task")
    cancels_before, is_over = task.cancelling(), False

    def end() -> None:
        nonlocal is_over
        if not stop.is_set():
            is_over = True
            task.cancel()

    timer = clock.call_later(seconds, end)
    try:
        await stop.wait()
    except asyncio.CancelledError:
        if not is_over or task.uncancel() > cancels_before:
            raise
    finally:
        timer.cancel()
    return stop.is_set()


async def every(
    clock: Clock, stop: asyncio.Event, seconds: float, call: Callable[[], object]
) -> None:
    """Call `call` every `seconds` until `stop` is set: no task wakes up for it, unlike for a pause.

    Raises:
        Exception: What `call` raised; it is not called again.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("nothing to do outside of a task")
    cancels_before, failures = task.cancelling(), list[Exception]()

    def beat() -> None:
        nonlocal timer  # type: ignore[misc] # bound below, before anything calls this
        if stop.is_set():
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised by the task, as the docstring says
            failures.append(error)
            task.cancel()
        else:
            timer = clock.call_later(seconds, beat)

    timer = clock.call_later(seconds, beat)
    try:
        await stop.wait()
    except asyncio.CancelledError:
        if not failures or task.uncancel() > cancels_before:
            raise
        raise failures[0] from None
    finally:
        timer.cancel()
