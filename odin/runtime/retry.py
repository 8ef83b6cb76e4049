"""Retry policies for infrastructure calls: connect loops and the like. Never for the work itself.

Always with a random exponential wait (else all nodes come back in step), and always with an end: a
deadline, or the service's stop event.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import tenacity

from odin.errors import UnavailableError
from odin.runtime.clock import Clock, SystemClock, pause
from odin.runtime.redaction import redact

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.1
_LOG_EVERY = 10

log = logging.getLogger(__name__)


def for_infrastructure(
    *expected: type[BaseException],
    give_up_after_seconds: float,
    longest_wait_seconds: float = 5.0,
) -> tenacity.AsyncRetrying:
    """Return a policy that retries only `expected` errors and raises the last one at the end.

    Use: `await for_infrastructure(OSError, give_up_after_seconds=10)(connect)`.

    Args:
        expected: The error types that a later try may cure.
        give_up_after_seconds: No try begins later than this after the first.
        longest_wait_seconds: Cap of one wait; the first is up to 0.1 s and each may double.
    """
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(expected),
        stop=tenacity.stop_before_delay(give_up_after_seconds),
        wait=tenacity.wait_random_exponential(_FIRST_WAIT_SECONDS, longest_wait_seconds),
        reraise=True,
    )


async def until_stopped(
    what: str,
    attempt: Callable[[], Awaitable[T]],
    expected: tuple[type[BaseException], ...],
    stop: asyncio.Event,
    *,
    clock: Clock | None = None,
    longest_wait_seconds: float = 5.0,
) -> T:
    """Call `attempt` until it succeeds, however long that takes, or until `stop` is set.

    For the connect loop of a part that cannot work without its peer and must outlast its absence.
    The first failure and then every tenth is logged, so that an outage does not flood the log.

    Args:
        what: What is attempted, for the log ("connect to the broker").
        attempt: The call; bounded in time by itself.
        expected: The error types that a later try may cure; others leave at once.
        stop: The service's stop event.
        clock: What waits between tries.
        longest_wait_seconds: Cap of one wait.

    Raises:
        UnavailableError: `stop` was set first.
    """
    waiting = clock or SystemClock()

    async def wait_or_give_up(seconds: float) -> None:
        if await pause(waiting, stop, seconds):
            raise UnavailableError(f"gave up to {what}: the service is stopping")

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if state.attempt_number % _LOG_EVERY == 1:
            detail = redact(f"{type(error).__name__}: {error}")
            log.warning("will try again", extra={"what": what, "detail": detail})

    policy = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(expected),
        wait=tenacity.wait_random_exponential(_FIRST_WAIT_SECONDS, longest_wait_seconds),
        sleep=wait_or_give_up,
        before_sleep=tell,
        reraise=True,
    )
    return await policy(attempt)
