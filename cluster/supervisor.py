"""The local cluster: starts everything in order, keeps it running, stops it in order and in time.

    leftovers ─▶ servers ─▶ migrations ─▶ engines, mocks ─▶ workers ─▶ load, chaos
                            stop:  chaos ─▶ load ─▶ workers ─▶ mocks ─▶ engines ─▶ servers

Each part is a process in a session of its own, so that a Ctrl-C at the terminal reaches only the
supervisor, which then stops them in order. If the supervisor itself is killed, the kernel ends the
parts and the servers with it.
"""

from __future__ import annotations

import asyncio
import copy
import os
from typing import TYPE_CHECKING, Final

import asyncpg

from odin.errors import FailedPreconditionError, OdinError
from odin.runtime.clock import pause
from odin.runtime.migrate import migrate
from odin.runtime.redaction import redact

from . import logfile
from .backing import Backing
from .breaking import Breaker
from .figures import Watcher
from .footer import described
from .identity import end_recorded, fingerprint
from .parts import START_ORDER, STOP_ORDER, listening, plan
from .ports import Reservations, choose_ports
from .proxying import NAME as PROXY
from .proxying import proxied, proxy_part
from .runner import PartRunner
from .servers.common import ServerError, secret_file
from .state import ClusterState, PartState, Phase, Secrets, read_state, write_secrets, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from odin.runtime.clock import Clock

    from .options import Options
    from .parts import Part, Reach
    from .place import Place

START_SECONDS: Final = 60.0
REFUSALS_MAX: Final = 3
POLL_SECONDS: Final = 0.1
STATE_SECONDS: Final = 0.25
ROTATE_SECONDS: Final = 5.0
LEFTOVER_SECONDS: Final = 4.0
HEAL_SECONDS: Final = 0.25
HEAL_SECONDS_MAX: Final = 1.0
# What each kind has to end by itself; what is then left is killed. With the servers' share and the
# killing itself the whole stays below ten seconds.
GRACE_SECONDS: Final = {
    "chaos": 0.7,
    "load": 2.0,
    "worker": 2.0,
    "mock": 0.7,
    "engine": 2.3,
    "proxy": 0.7,
}
STOP_SECONDS: Final = 8.5
SERVERS_SECONDS_MIN: Final = 1.2
# Where clients look for an engine that nobody named.
CLIENT_PORT: Final = 7300


class ClusterStartError(FailedPreconditionError):
    """A part would not start."""

    reason = "CLUSTER_NOT_STARTED"


class Cluster:
    """The cluster of one folder, which the caller owns (`Place.owned`).

    Attributes:
        runners: The parts by name, once they are planned.
        watcher: Looks at the numbers, once there are servers.
    """

    def __init__(
        self,
        options: Options,
        place: Place,
        environ: Mapping[str, str],
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        """Remember what to start.

        Args:
            options: How many of what.
            place: Its files.
            environ: The environment it was started in; a server that it names is used.
            clock: Measures waits.
            tell: Takes a line for the user.
        """
        self._options = options
        self._place = place
        self._environ = environ
        self._clock = clock
        self._tell = tell
        self._backing: Backing | None = None
        self._reservations = Reservations()
        self._group: asyncio.TaskGroup | None = None
        self._over = asyncio.Event()
        self._written: ClusterState | None = None
        self._phase: Phase = "starting"
        self._started_at = clock.wall().isoformat(timespec="seconds")
        self._breaker = Breaker(place, clock)
        self.runners: dict[str, PartRunner] = {}
        self.watcher: Watcher | None = None

    @property
    def parts(self) -> list[PartState]:
        """Every server and part as it is."""
        servers = list(self._backing.states.values()) if self._backing else []
        return [*servers, *(runner.state for runner in self.runners.values())]

    @property
    def dsn(self) -> str:
        """Postgres's address with its password."""
        return self._backing.urls["postgres"] if self._backing else ""

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start everything and return when it is ready; the parts live in `group`.

        Raises:
            ClusterStartError: a part did not get ready.
            ExceptionGroup: of `ServerError`: a server could not be started.
        """
        self._group = group
        last = read_state(self._place)
        await self._breaker.forget_all()
        await self._end_leftovers(last)
        self._backing = backing = Backing(
            self._place,
            self._environ,
            self._clock,
            self._tell,
            _ports_of(last),
            self._reservations,
        )
        group.create_task(self._keep_state(), name="state")
        await backing.start()
        group.create_task(backing.watch(self._over), name="watch servers")
        group.create_task(self._keep_logs_short(), name="logs")
        group.create_task(self._keep_healing(), name="heal")
        began = self._clock.boottime()
        try:
            applied = await migrate(self.dsn)
        except (OSError, asyncpg.PostgresError) as error:
            raise ClusterStartError(f"Postgres cannot be reached or used: {error}") from error
        if applied:
            self._tell(f"schema brought up to date ({self._since(began)})")
        self._plan(_ports_of(last))
        for kinds in START_ORDER:
            await self._start_kinds(kinds)
        self._phase = "running"

    async def stop(self) -> None:
        """Stop everything in order, within ten seconds."""
        await self._heal_all()
        self._phase = "stopping"
        until = self._clock.boottime() + STOP_SECONDS
        if self.watcher is not None:
            await self.watcher.close()
        took: list[str] = []
        for kind in STOP_ORDER:
            began = self._clock.boottime()
            await self._stop_kind(kind)
            took.append(f"{kind} {self._since(began)}")
        if self._backing is not None:
            began = self._clock.boottime()
            await self._backing.stop(max(until - began, SERVERS_SECONDS_MIN))
            took.append(f"servers {self._since(began)}")
        self._tell(f"stopped: {', '.join(took)}")
        self._over.set()
        self._reservations.close()
        self._phase = "stopped"
        self._write()

    def kill(self) -> None:
        """Stop waiting for orderly ends: everything ends at once."""
        for runner in self.runners.values():
            runner.kill()
        if self._backing is not None:
            self._backing.kill()

    async def _end_leftovers(self, last: ClusterState | None) -> None:
        """End what an earlier supervisor that was killed left running; servers end their own."""
        if last is None:
            return
        recorded = [
            (one.pid, one.fingerprint)
            for one in last.parts
            if one.kind != "server" and one.pid is not None
        ]
        if ended := await end_recorded(recorded, self._clock, LEFTOVER_SECONDS):
            self._tell(f"ended {len(ended)} processes that an earlier cluster had left behind")

    def _plan(self, last: Mapping[str, Sequence[int]]) -> None:
        assert self._backing is not None, "servers first"  # noqa: S101 - for the type checker
        names = listening(self._options)
        engines = [name for name in names if name.startswith("engine-")]
        usual = {name: [CLIENT_PORT + number] for number, name in enumerate(engines)}
        preferred = {name: [*usual.get(name, ()), *last.get(name, ())] for name in names}
        ports = choose_ports(names, preferred, self._reservations)
        urls = self._backing.urls
        token = secret_file(self._place.folder / "mock-admin-token")
        addresses = {
            **{name: f"http://127.0.0.1:{port}" for name, port in ports.items()},
            "postgres": urls["postgres"],
            "broker": urls.get("rabbitmq", ""),
            "valkey": urls["valkey"],
            "mock-token": token,
        }

        def reach(part: str, dependency: str) -> str:  # noqa: ARG001 - here all are reached directly
            return addresses[dependency]

        parts = self._parts(ports, reach)
        secrets = Secrets(
            postgres_dsn=urls["postgres"],
            amqp_url=urls.get("rabbitmq", ""),
            valkey_url=urls["valkey"],
            mock_admin_token=token,
            proxy_token=secret_file(self._place.folder / "proxy-token"),
        )
        write_secrets(self._place, secrets)
        self._place.begin_client_log()
        for part in parts:
            self.add(part)
        workers = [name for name, one in self.runners.items() if one.part.kind == "worker"]
        self.watcher = Watcher(self.dsn, urls["valkey"], engines, workers, self._clock)

    def _parts(self, ports: Mapping[str, int], reach: Reach) -> list[Part]:
        """Return the parts; with a proxy in every link, if one is wanted."""

        def planned(way: Reach) -> list[Part]:
            return plan(self._options, self._place, ports, way, self._environ)

        if not self._options.proxies:
            return planned(reach)
        through = proxied(planned, reach, self._reservations)
        port = choose_ports([PROXY], None, self._reservations)[PROXY]
        token = secret_file(self._place.folder / "proxy-token")
        proxy = proxy_part(through.wires, port, token, self._environ)
        return [proxy, *planned(through.reach)]

    def add(self, part: Part) -> PartRunner:
        """Add a part to what is kept running; it is started with its kind."""
        log_path = self._place.log_of(part.name)
        runner = PartRunner(part, log_path, self._clock, self._note)
        self.runners[part.name] = runner
        return runner

    async def _start_kinds(self, kinds: Sequence[str]) -> None:
        assert self._group is not None, "inside start"  # noqa: S101 - for the type checker
        runners = [one for one in self.runners.values() if one.part.kind in kinds]
        if not runners:
            return
        began = self._clock.boottime()
        for runner in runners:
            self._group.create_task(runner.run(), name=runner.part.name)
        await self._until_ready(runners)
        for kind in kinds:
            names = [one.part.name for one in runners if one.part.kind == kind]
            if names:
                self._tell(f"{', '.join(names)} ready ({self._since(began)})")

    async def _until_ready(self, runners: Sequence[PartRunner]) -> None:
        until = self._clock.boottime() + START_SECONDS
        while waiting := [one for one in runners if not one.ready.is_set()]:
            late = self._clock.boottime() > until
            stuck = [one for one in waiting if late or one.refusals >= REFUSALS_MAX]
            if stuck:
                said = "; ".join(
                    described(one.state)
                    if one.state.exit_code is not None
                    else f"{one.part.name} was not ready in {START_SECONDS:.0f} s"
                    for one in stuck
                )
                raise ClusterStartError(f"{said} (logs: {self._place.logs})")
            await self._clock.sleep(POLL_SECONDS)

    async def _stop_kind(self, kind: str) -> None:
        runners = [one for one in self.runners.values() if one.part.kind == kind]
        async with asyncio.TaskGroup() as group:
            for runner in runners:
                if runner.state.started_at:
                    ending = runner.end(GRACE_SECONDS[kind])
                    group.create_task(ending, name=f"end {runner.part.name}")

    def _note(self, runner: PartRunner) -> None:
        """Tell what the user should know of a part that has changed."""
        state = runner.state
        if state.phase in {"waiting", "refused"}:
            self._tell(f"{described(state)}; starting it again")
        elif state.phase == "running" and state.restarts and self._phase == "running":
            self._tell(f"{state.name} is back")

    async def _keep_state(self) -> None:
        """Write what has changed, a few times a second at most."""
        while not await pause(self._clock, self._over, STATE_SECONDS):
            self._write()

    async def _keep_logs_short(self) -> None:
        while not await pause(self._clock, self._over, ROTATE_SECONDS):
            for path in sorted(self._place.logs.glob("*.log")):
                await asyncio.to_thread(logfile.rotate, path)

    async def _keep_healing(self) -> None:
        """Heal what was broken on purpose once its time is over."""
        while not await pause(self._clock, self._over, HEAL_SECONDS):
            try:
                for one in await self._breaker.heal_due():
                    self._tell(f"healed: {one.what}")
            except (ServerError, OdinError) as error:  # it stays on record, and is tried again
                self._tell(f"cannot heal yet: {redact(str(error))}")

    async def _heal_all(self) -> None:
        """Heal everything: a frozen part could not end in order. An alarm ends with its broker."""
        try:
            async with asyncio.timeout(HEAL_SECONDS_MAX):
                await self._breaker.heal(lambda one: one.kind != "alarm")
        except (TimeoutError, OdinError) as error:
            self._tell(f"could not heal: {redact(str(error)) or 'no time'}")

    def _write(self) -> None:
        runners = self.runners.values()
        backing = self._backing
        broker = "" if backing is None else "rabbitmq" if "rabbitmq" in backing.urls else "embedded"
        state = ClusterState(
            pid=os.getpid(),
            fingerprint=fingerprint(os.getpid()),
            phase=self._phase,
            started_at=self._started_at,
            broker=broker,
            engines=[one.part.address for one in runners if one.part.kind == "engine"],
            notices=list(backing.notices) if backing else [],
            parts=[copy.copy(one) for one in self.parts],
        )
        if state != self._written:
            write_state(self._place, state)
            self._written = state

    def _since(self, began: float) -> str:
        return f"{self._clock.boottime() - began:.1f} s"


def _ports_of(state: ClusterState | None) -> dict[str, list[int]]:
    """Return the ports that the parts of the last cluster had: addresses are to stay."""
    found: dict[str, list[int]] = {}
    for part in state.parts if state else []:
        port = part.address.rpartition(":")[2]
        if port.isdecimal():
            found[part.name] = [int(port)]
    return found
