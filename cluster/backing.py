"""The servers under the cluster: found or set up, watched, stopped within a bound.

Where RabbitMQ can be neither found nor installed, tasks go to workers over their links instead (the
embedded broker), and the user is told. A server of ours that ends is started again on its port.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Final

from odin.core.backoff import doubled
from odin.runtime.clock import pause
from odin.runtime.settings import Broker

from .identity import fingerprint, send
from .ports import LOOPBACK, Reservations, choose_ports
from .servers import (
    ExternalServer,
    PostgresServer,
    RabbitmqServer,
    Server,
    ServerError,
    ValkeyServer,
)
from .servers.rabbitmq import PROGRAMS
from .state import PartPhase, PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from odin.runtime.clock import Clock

    from .place import Place

VARIABLES: Final = {
    "postgres": "ODIN_POSTGRES_DSN",
    "rabbitmq": "ODIN_AMQP_URL",
    "valkey": "ODIN_VALKEY_URL",
}
_KINDS: Final[Mapping[str, type[PostgresServer | RabbitmqServer | ValkeyServer]]] = {
    "postgres": PostgresServer,
    "rabbitmq": RabbitmqServer,
    "valkey": ValkeyServer,
}
_LOGS: Final = {"postgres": "postgres.log", "rabbitmq": "start.log", "valkey": "valkey.log"}
WATCH_SECONDS: Final = 0.5
RETRY_MS: Final = 500
RETRY_MS_MAX: Final = 10_000
KILL_SECONDS: Final = 1.5

log = logging.getLogger(__name__)


class Backing:
    """Postgres, RabbitMQ and Valkey of one cluster.

    Attributes:
        states: One per server, as `odin ps` shows it.
        notices: What the user should know.
    """

    def __init__(
        self,
        place: Place,
        environ: Mapping[str, str],
        clock: Clock,
        tell: Callable[[str], None],
        preferred_ports: Mapping[str, Sequence[int]],
        reservations: Reservations,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._environ = environ
        used = [one for one in VARIABLES if one != "rabbitmq" or not is_embedded(environ)]
        own = [name for name in used if not environ.get(VARIABLES[name])]
        ports = choose_ports(own, preferred_ports, reservations)
        self._servers: dict[str, Server] = {}
        self.states: dict[str, PartState] = {}
        self.notices: list[str] = []
        self._stopping = False
        for name in used:
            folder, variable = place.servers / name, VARIABLES[name]
            if name in ports:
                self._servers[name] = _KINDS[name](folder, environ, ports[name])
            else:
                self._servers[name] = ExternalServer(name, environ[variable])
            self.states[name] = PartState(
                name=name,
                kind="server",
                address=f"{LOOPBACK}:{ports[name]}" if name in ports else f"as {variable} says",
                log=str(folder / _LOGS[name]) if name in ports else "",
            )

    @property
    def urls(self) -> dict[str, str]:
        """The addresses by name, with passwords; the broker's is missing in embedded mode."""
        return {name: server.url for name, server in self._servers.items()}

    async def start(self) -> None:
        """Start all that are ours, side by side.

        Raises:
            ExceptionGroup: of `ServerError`: Postgres or Valkey could not be started.
        """
        if "rabbitmq" in self._own() and not (PROGRAMS / "rabbitmq-server").exists():
            self._tell("rabbitmq is not installed: trying to install it, which may take minutes")
        async with asyncio.TaskGroup() as group:
            for name in self._servers:
                group.create_task(self._start(name), name=f"start {name}")

    async def watch(self, stop: asyncio.Event) -> None:
        """Start again what ends by itself, until `stop` is set; it has its port and its data."""
        wait_ms = dict.fromkeys(self._servers, RETRY_MS)
        while not await pause(self._clock, stop, WATCH_SECONDS):
            for name in self._own():
                server, state = self._servers[name], self.states[name]
                if self._stopping or server.pid is not None:
                    continue
                self._change(name, "waiting")
                self._tell(f"{name} ended: starting it again")
                state.restarts += 1
                try:
                    await server.start()
                except ServerError as error:
                    self._tell(f"{name} cannot be started: {_first_line(error)}")
                    if await pause(self._clock, stop, wait_ms[name] / 1_000):
                        return
                    wait_ms[name] = doubled(wait_ms[name], RETRY_MS_MAX)
                else:
                    wait_ms[name] = RETRY_MS
                    self._tell(f"{name} is back")
                    self._change(name, "running")

    async def stop(self, grace_seconds: float) -> None:
        """Stop all that are ours in order, and kill what has not ended after the grace."""
        self._stopping = True
        async with asyncio.TaskGroup() as group:
            for name in self._own():
                group.create_task(self._stop(name, grace_seconds), name=f"stop {name}")

    def kill(self) -> None:
        """End all that are ours at once; what they had confirmed is on the disk."""
        self._stopping = True
        for server in self._servers.values():
            if server.pid is not None:
                send(server.pid, signal.SIGKILL)

    def _own(self) -> list[str]:
        return [n for n, one in self._servers.items() if not isinstance(one, ExternalServer)]

    async def _start(self, name: str) -> None:
        server = self._servers[name]
        if isinstance(server, ExternalServer):
            self._change(name, "running")
            self._tell(f"{name}: using the one that {VARIABLES[name]} names")
            return
        began = self._clock.boottime()
        self._change(name, "starting")
        try:
            await server.start()
        except ServerError as error:
            await server.stop()
            if name != "rabbitmq":
                raise
            self._go_without_rabbitmq(error)
            return
        self._change(name, "running")
        self._tell(f"{name} runs on {self.states[name].address} ({self._since(began)})")

    def _go_without_rabbitmq(self, error: ServerError) -> None:
        del self._servers["rabbitmq"], self.states["rabbitmq"]
        reason = _first_line(error)
        self.notices.append(
            f"no RabbitMQ ({reason}): engines hand tasks to workers over their links instead "
            "(embedded mode, for one machine only). "
            + (error.advice or f"Set {VARIABLES['rabbitmq']} to use a RabbitMQ of yours.")
        )
        self._tell(f"NOTICE {self.notices[-1]}")

    async def _stop(self, name: str, grace_seconds: float) -> None:
        server = self._servers[name]
        try:
            async with asyncio.timeout(grace_seconds):
                await server.stop()
        except TimeoutError:
            log.warning("server killed, it did not stop in time", extra={"server": name})
            async with asyncio.timeout(KILL_SECONDS):
                await server.kill()
                await server.stop()
        self._change(name, "stopped")

    def _change(self, name: str, phase: PartPhase) -> None:
        state, pid = self.states[name], self._servers[name].pid
        state.phase, state.pid = phase, pid
        state.fingerprint = fingerprint(pid) if pid is not None else ""
        if phase == "running":
            state.started_at = self._clock.wall().isoformat(timespec="seconds")

    def _since(self, began: float) -> str:
        return f"{self._clock.boottime() - began:.1f} s"


def is_embedded(environ: Mapping[str, str]) -> bool:
    """Return whether the environment asks for the embedded broker: no RabbitMQ is looked for."""
    return environ.get("ODIN_BROKER") == Broker.EMBEDDED.value


def _first_line(error: ServerError) -> str:
    return str(error).split("\n", 1)[0]
