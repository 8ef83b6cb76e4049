"""The life of `odin dev`: servers, engine, worker; new code; and an end in order.

import ∥ servers ─▶ migrations ─▶ engine ─▶ worker ─▶ (a file changes: import, swap) ─▶
stop:  worker ─▶ engine ─▶ servers
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from odin.errors import InvalidArgumentError, UnavailableError
from odin.runtime.clock import SystemClock
from odin.runtime.migrate import migrate
from odin.runtime.parent import ParentWatch
from odin.runtime.redaction import redact
from odin.runtime.services import module_of
from odin.runtime.settings import load

from .backing import VARIABLES, Backing
from .dev_banner import banner
from .dev_code import AuthoredCode
from .dev_console import Console, set_up_logging
from .dev_kept import owned, place_of, write_phase
from .dev_replay import bury_nodes
from .dev_worker import Hosted
from .footer import silence_terminal
from .ports import LOOPBACK, Reservations, choose_ports
from .servers import ServerError
from .state import Secrets, read_state, write_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from .dev_options import DevOptions
    from .place import Place
    from .state import Phase

CLIENT_PORT: Final = 7300
NODE_ID: Final = "dev"
EXIT_NOT_STARTED: Final = 1
EXIT_AT_ONCE: Final = 130
SWITCH_SECONDS: Final = 0.000_5
LEAVE_SECONDS: Final = 0.3
READY_SECONDS: Final = 30.0
# What each has to end by itself. After END_SECONDS all that is left is killed: code of the author
# that computes without a pause may slow the end of everything else.
END_SECONDS: Final = 2.7
WORKER_SECONDS: Final = 0.9
ENGINE_SECONDS: Final = 0.8
SERVERS_SECONDS: Final = 0.9
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_dev(options: DevOptions) -> int:
    """Run until told to stop; return the exit code.

    Raises:
        DevRunsError: Another one runs with this data.
        OdinError: The modules cannot be found, or the engine refuses to start.
    """
    # Code of the author that computes shares the interpreter with the engine: turns are short.
    sys.setswitchinterval(SWITCH_SECONDS)
    place = place_of(options.folder)
    console = Console(options.root, sys.stderr)
    code = EXIT_NOT_STARTED
    try:
        with owned(place, fresh=options.fresh):
            code = asyncio.run(_run(options, place, console))
    finally:
        _leave_within(LEAVE_SECONDS, code)
    return code


async def _run(options: DevOptions, place: Place, console: Console) -> int:
    dev = Dev(options, place, console)
    code = 0
    with _handled(dev):
        try:
            await dev.live()
        except* ServerError as failed:
            console.line(f"error: {_first(failed)}")
            code = EXIT_NOT_STARTED
        except* (OSError, asyncpg.PostgresError) as failed:
            console.line(f"error: {redact(str(_first(failed)))} (log: {place.log_of('dev')})")
            code = EXIT_NOT_STARTED
    return code


class Dev:
    """One run of `odin dev`."""

    def __init__(self, options: DevOptions, place: Place, console: Console) -> None:
        self.stop = asyncio.Event()
        self._options = options
        self._place = place
        self._console = console
        self._clock = SystemClock()
        self._began = self._clock.boottime()
        self._started_at = self._clock.wall().isoformat(timespec="milliseconds")
        self._last = read_state(place)
        self._reservations = Reservations()
        # Servers that the shell knows are not for trials: they may be those of production.
        environ = {k: v for k, v in os.environ.items() if k not in VARIABLES.values()}
        self._backing = Backing(
            place,
            {**environ, "ODIN_BROKER": "embedded"},
            self._clock,
            lambda _line: None,
            {},
            self._reservations,
        )
        self._engine_stop = asyncio.Event()
        self._engine_task: asyncio.Task[None] | None = None
        self._told = False
        self._shown = set_up_logging(console, place.log_of("dev"))
        self._address = ""
        self._hosted = Hosted(
            AuthoredCode(options.targets, options.root) if options.targets else None,
            options,
            console,
            self._shown,
        )

    def on_signal(self, number: signal.Signals) -> None:
        """Stop in order; at the second time at once."""
        if number == signal.SIGHUP:
            silence_terminal()
        if self.stop.is_set():
            self._backing.kill()
            os._exit(EXIT_AT_ONCE)
        self._told = True
        self.stop.set()

    async def live(self) -> None:
        """Run from the first server to the last.

        Raises:
            ExceptionGroup: Of what kept it from starting, or ended it.
        """
        async with asyncio.TaskGroup() as group:
            if (watch := ParentWatch.from_environment()) is not None:
                group.create_task(self._until_alone(watch), name="parent")
            try:
                await self._unless_stopped(self._serve(group))
            finally:
                self.stop.set()
                await self._end()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it fails or the stop event is set, whatever it then waits for."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work, name="serve")
            stopping = group.create_task(self.stop.wait(), name="until told to stop")
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()

    async def _until_alone(self, watch: ParentWatch) -> None:
        await watch(self.stop)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        """Start everything, with the parts that end last in `group`, and host the author's code."""
        self._write("starting")
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._backing.start(), name="servers")
            starting.create_task(self._hosted.load_first(), name="import")
        group.create_task(self._backing.watch(self.stop), name="watch servers")
        urls = self._backing.urls
        write_secrets(
            self._place, Secrets(postgres_dsn=urls["postgres"], valkey_url=urls["valkey"])
        )
        await migrate(urls["postgres"])
        await bury_nodes(urls["postgres"])
        port = self._port()
        engine = self._engine(port)
        self._engine_task = group.create_task(self._run_engine(engine), name="engine")
        self._address = f"http://{LOOPBACK}:{port}"
        await self._hosted.begin(self._address, urls["postgres"], self.stop, READY_SECONDS)
        self._write("running")
        took = self._clock.boottime() - self._began
        banner(self._console, self._options, self._hosted.found, self._address, took, self._place)
        self._hosted.tell_warnings()
        await self._hosted.run(self.stop)

    def _port(self) -> int:
        asked = self._options.port
        before = [
            int(engine.rpartition(":")[2]) for engine in (self._last.engines if self._last else [])
        ]
        wanted = [asked] if asked is not None else [CLIENT_PORT, *before]
        port = choose_ports(["engine"], {"engine": wanted}, self._reservations)["engine"]
        if asked is not None and port != asked:
            raise InvalidArgumentError(f"--port {asked} is in use: take another, or leave it out")
        if port != wanted[0]:
            self._console.line(f"port {wanted[0]} is in use: taking {port}")
        return port

    def _engine(self, port: int) -> Any:  # noqa: ANN401 - resolved at run time, see the layer rule
        """Return the engine, configured by nothing but what is given here."""
        package = module_of("engine")
        urls = self._backing.urls
        settings = load(
            importlib.import_module(f"{package}.settings").EngineSettings,
            postgres_dsn=urls["postgres"],
            valkey_url=urls["valkey"],
            broker="embedded",
            amqp_url=None,
            node_id=NODE_ID,
            http_host=LOOPBACK,
            http_port=port,
            http_advertise=None,
            api_token=self._options.token,
        )
        return importlib.import_module(f"{package}.lifetime").Engine(settings, clock=self._clock)

    async def _run_engine(self, engine: Any) -> None:  # noqa: ANN401 - resolved at run time
        await engine.run(self._engine_stop)
        if not self.stop.is_set():
            raise UnavailableError("the engine ended by itself")

    async def _end(self) -> None:
        """Stop worker, engine and servers, each within a bound."""
        began = self._clock.boottime()
        self._shown.silence()
        _leave_within(END_SECONDS, 0 if self._told else EXIT_NOT_STARTED, self._backing.kill)
        await self._hosted.end(WORKER_SECONDS)
        self._engine_stop.set()
        if self._engine_task is not None:
            await asyncio.wait({self._engine_task}, timeout=ENGINE_SECONDS)
            self._engine_task.cancel()
        await self._backing.stop(SERVERS_SECONDS)
        self._reservations.close()
        self._write("stopped")
        self._console.line(f"stopped ({self._clock.boottime() - began:.1f} s)")

    def _write(self, phase: Phase) -> None:
        states = list(self._backing.states.values())
        write_phase(self._place, phase, self._started_at, self._address, states)


@contextlib.contextmanager
def _handled(dev: Dev) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, dev.on_signal, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _leave_within(seconds: float, code: int, first: Callable[[], None] = lambda: None) -> None:
    """Call `first` and end the process in `seconds`, whatever threads of the author's hold it."""

    def leave() -> None:
        first()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
