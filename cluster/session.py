"""One run of a cluster from a command: signals, the screen, and an end in order whatever happens.

SIGINT, SIGTERM and SIGHUP stop it; a second signal while it stops ends everything at once. After a
SIGHUP the terminal has gone: nothing is written to it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from odin.errors import OdinError
from odin.runtime.clock import SystemClock
from odin.runtime.redaction import redact

from .footer import screen_for, silence_terminal
from .servers import ServerError
from .supervisor import Cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from typing import Any

    from odin.runtime.clock import Clock

    from .footer import Screen
    from .options import Options
    from .place import Place

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_NOT_STARTED: Final = 1


class Session:
    """A cluster that runs, and what the command that started it knows of it.

    Attributes:
        cluster: The cluster.
        screen: Where the user looks.
        stop: Set once it is to end.
        clock: Measures waits.
        told_by: The signal that ended it; None if none did.
    """

    def __init__(self, cluster: Cluster, screen: Screen, clock: Clock) -> None:
        self.cluster = cluster
        self.screen = screen
        self.clock = clock
        self.stop = asyncio.Event()
        self.told_by: signal.Signals | None = None

    def on_signal(self, number: signal.Signals) -> None:
        """Stop in order; at the second time at once."""
        if number == signal.SIGHUP:
            silence_terminal()
        if self.stop.is_set():
            self.screen.line("second signal: ending everything at once")
            self.cluster.kill()
            return
        self.told_by = number
        self.stop.set()

    async def show(self) -> None:
        """Draw the footer for ever; the caller ends it."""
        watcher = self.cluster.watcher
        while watcher is not None:
            figures = await watcher.look()
            self.screen.footer(figures, self.cluster.parts)
            await self.clock.sleep(self.screen.footer_seconds)

    async def unless_stopped(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run `work` to its end, or cancel it when the session is to end; return whether it ended.

        Raises:
            ExceptionGroup: of what `work` raised.
        """
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work, name="work")
            stopping = group.create_task(self.stop.wait(), name="until told to stop")
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()
        return not working.cancelled()


Body: TypeAlias = "Callable[[Session], Awaitable[int]]"


def run_session(options: Options, place: Place, body: Body) -> int:
    """Start a cluster, run `body` with it, stop it; return the exit code.

    Raises:
        ClusterRunsError: one runs in this folder already.
    """
    with place.owned():
        return asyncio.run(_session(options, place, body))


async def _session(options: Options, place: Place, body: Body) -> int:
    clock = SystemClock()
    screen = screen_for(clock)
    cluster = Cluster(options, place, dict(os.environ), clock, screen.line)
    session = Session(cluster, screen, clock)
    code = EXIT_NOT_STARTED
    with _handled(session):
        async with asyncio.TaskGroup() as group:
            try:
                if await session.unless_stopped(cluster.start(group)):
                    code = await body(session)
            except* (OdinError, ServerError, OSError, asyncpg.PostgresError) as failed:
                for error in _leaves(failed):
                    screen.line(f"FAILED {redact(str(error)) or type(error).__name__}")
            finally:
                session.stop.set()
                screen.close()
                await _stop(session)
    return code


async def _stop(session: Session) -> None:
    began = session.clock.boottime()
    session.screen.line("stopping: load, workers, mocks, engines, servers")
    await session.cluster.stop()
    session.screen.line(f"everything has ended ({session.clock.boottime() - began:.1f} s)")


@contextlib.contextmanager
def _handled(session: Session) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, session.on_signal, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
