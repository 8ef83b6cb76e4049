"""The life of a service process: loops that are handed a stop event, and one way out.

    start ──▶ serving ──(SIGTERM, SIGINT, a loop failed, the supervisor is gone)──▶ draining ──▶ end
                                                       └──(second signal, or the deadline)──▶ cut

Every long-lived part is a loop: it is called with the stop event and returns soon after that is
set, with the work in hand done. What will not return is cancelled at the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from odin.errors import OdinError
from odin.runtime.log import setup_logging
from odin.runtime.parent import ParentWatch
from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

Loop: TypeAlias = Callable[[asyncio.Event], Coroutine[Any, Any, None]]

EXIT_FAILED = 1
EXIT_REFUSED_TO_START = 2
_EXIT_GRACE_SECONDS = 3.0

log = logging.getLogger(__name__)


class LoopEndedError(RuntimeError):
    """A loop returned although nothing had told it to stop: the service has lost a part."""


async def serve(
    loops: Mapping[str, Loop], drain_timeout: timedelta, stop: asyncio.Event | None = None
) -> None:
    """Run every loop until one fails or the process is told to stop.

    A loop that raises, or returns before the stop event is set, stops all the others: they drain
    as for a signal, and then its error leaves this function. A process that has lost a loop is not
    healthy, and its supervisor starts it again.

    If `ODIN_PARENT_PID` is set, the end of that process is one more reason to stop.

    Args:
        loops: Name to loop; the names appear in logs and as task names.
        drain_timeout: How long the loops have to return once told to stop.
        stop: The event that they are handed, if somebody else must see or set it too.

    Raises:
        ExceptionGroup: one or more loops failed.
        TimeoutError: no loop failed, but draining took longer than `drain_timeout`, or a second
            signal cut it short.
    """
    stop = stop or asyncio.Event()
    failures: list[Exception] = []
    watch = ParentWatch.from_environment()
    every: dict[str, Loop] = {**loops, "parent": watch} if watch else dict(loops)
    try:
        async with asyncio.timeout(None) as deadline:
            with _signals_set(stop, deadline):
                async with asyncio.TaskGroup() as group:
                    for name, loop in every.items():
                        group.create_task(_watched(name, loop, stop, failures), name=name)
                    log.info("serving", extra={"loops": sorted(every)})
                    await stop.wait()
                    log.info("draining", extra={"drain_timeout_s": drain_timeout.total_seconds()})
                    _reschedule(deadline, drain_timeout.total_seconds())
    except TimeoutError:
        late = TimeoutError("draining was cut: a loop did not return in time")
        if not failures:
            raise late from None
        failures.append(late)
    if failures:
        raise ExceptionGroup("loops failed", failures)
    log.info("stopped")


def run(main: Callable[[], Coroutine[Any, Any, None]], *, service: str, node: str = "") -> NoReturn:
    """Run a service's `main` to its end and leave the process.

    Sets up logging, uses uvloop if it is installed, and turns errors into exit codes: 0 for an
    orderly end, 2 with one clear line for an error that odin raises on purpose (a wrong setting, a
    schema that does not fit), 1 with the stack for anything else. A thread that will not end
    cannot hold the process: it is cut 3 s after `main` is over.

    Args:
        main: The service's composition root.
        service: The service's name for logs, e.g. "engine".
        node: The node's name for logs, if it is known before the settings are read.
    """
    setup_logging(service, node)
    _tune_collector()
    code = EXIT_FAILED
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(_exit_code_of(main))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)


def _tune_collector() -> None:
    """Let the collector run less: what was imported stays, most of the rest is freed at once.

    Measured on a worker: a third of the CPU of a small activity went into young generations.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _exit_code_of(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    code = EXIT_FAILED
    try:
        await main()
        code = 0
    except Exception as error:  # noqa: BLE001 - the last resort of a process: say it, then end
        code = _report(error)
    finally:
        _cut_after(_EXIT_GRACE_SECONDS, code)
    return code


def _report(error: Exception) -> int:
    """Log why the service ends and return the exit code."""
    expected = _expected_errors(error)
    for one in expected:
        log.error("refused to go on", extra={"reason": one.reason, "detail": redact(str(one))})
    if expected:
        return EXIT_REFUSED_TO_START
    log.error("service failed", exc_info=error)
    return EXIT_FAILED


def _expected_errors(error: BaseException) -> list[OdinError]:
    """Return the errors in `error` if every one of them was raised on purpose, else nothing."""
    if isinstance(error, OdinError):
        return [error]
    if not isinstance(error, BaseExceptionGroup):
        return []
    found = [_expected_errors(one) for one in error.exceptions]
    return [one for part in found for one in part] if all(found) else []


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory; None, the standard one, where uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and not needed by whoever only imports this module
    except ImportError:
        return None
    return uvloop.new_event_loop


def _cut_after(seconds: float, code: int) -> None:
    """End the process `seconds` from now, whatever threads or clean-up still hold it."""

    def cut() -> None:
        logging.shutdown()
        os._exit(code)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()


async def _watched(name: str, loop: Loop, stop: asyncio.Event, failures: list[Exception]) -> None:
    """Run one loop; its failure stops the service instead of cancelling the others mid-work."""
    try:
        await loop(stop)
        if not stop.is_set():
            failures.append(LoopEndedError(f"loop {name!r} ended before it was told to stop"))
    except Exception as error:  # noqa: BLE001 - any failure of a loop ends the service, serve raises it
        # The stack comes with the raised error; this line says at once what began the end. What was
        # raised on purpose is said once, by `_report`.
        detail = redact(f"{type(error).__name__}: {error}")
        level = logging.INFO if _expected_errors(error) else logging.ERROR
        log.log(level, "loop failed", extra={"loop": name, "detail": detail})
        failures.append(error)
    stop.set()


@contextlib.contextmanager
def _signals_set(stop: asyncio.Event, deadline: asyncio.Timeout) -> Iterator[None]:
    """Let SIGINT and SIGTERM set `stop`; one that comes while draining ends the drain at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can be told by signals
        return
    running = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            log.warning("second signal, not waiting", extra={"signal": number.name})
            _reschedule(deadline, 0.0)
        else:
            log.info("told to stop", extra={"signal": number.name})
            stop.set()

    for number in numbers:
        running.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            running.remove_signal_handler(number)


def _reschedule(deadline: asyncio.Timeout, seconds: float) -> None:
    """Set the deadline `seconds` from now, never later than it already is."""
    if deadline.expired():
        return
    at = asyncio.get_running_loop().time() + seconds
    current = deadline.when()
    deadline.reschedule(at if current is None else min(at, current))
