"""What is tried, act by act; each returns facts worth showing, or raises SmokeError."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .orders import Orders
from .running import SmokeError
from .setting import ENGINES

if TYPE_CHECKING:
    from .podman import Podman
    from .setting import Setting

Act = Callable[[], Awaitable[list[str]]]

STORES: Final = ("postgres", "rabbitmq", "valkey")
MOCKS: Final = ("payments", "shipping", "drivers")
WORKERS: Final = ("worker-1", "worker-2", "worker-3")
SERVICES: Final = (*STORES, *ENGINES, *MOCKS, *WORKERS, "load")
VICTIM: Final = "engine-1"
WELL_SECONDS: Final = 90.0
ORDER_SECONDS: Final = 60.0
SHARE_SECONDS: Final = 90.0
SHARE_COUNT: Final = 8
POLL_SECONDS: Final = 0.5
UNAUTHORIZED: Final = 401
_NO_CAPABILITIES: Final = "0000000000000000"


@dataclass(slots=True)
class Trial:
    """The system in containers, from its first start to its end."""

    podman: Podman
    setting: Setting
    _stolen: set[int] = field(default_factory=set)

    def acts(self) -> Sequence[tuple[str, Act]]:
        """Return what is done, in order."""
        return (
            ("Postgres, RabbitMQ, Valkey well", lambda: self._start(*STORES)),
            ("schema migrated", self._migrate),
            ("engines and mocks well", lambda: self._start(*ENGINES, *MOCKS)),
            ("workers and load well", lambda: self._start(*WORKERS, "load")),
            ("an order placed and completed", lambda: self._order("before")),
            ("nothing open, nothing privileged", self._is_closed),
            (f"{VICTIM} has its share of the shards", self._share),
            (f"{VICTIM} killed", self._kill),
            (f"an order of {VICTIM}'s completed by the others", self._order_of_the_victim),
            (f"{VICTIM} back and well", self._revive),
            ("worker-1 crashed and restarted", self._crash),
            ("another order completed", lambda: self._order("after")),
            ("every service well", lambda: self._well(*SERVICES)),
            ("no secret in any log", self._no_secret_in_logs),
        )

    @property
    def orders(self) -> Orders:
        """What a client outside can do."""
        return Orders(list(self.setting.addresses.values()), self.setting.token)

    async def keep_logs(self) -> None:
        """Write the containers' last words down, for whoever looks for the reason."""
        for service in (*SERVICES, "migrate"):
            said = await self.podman.logs(service, "--tail", "60")
            self.podman.runner.note(f"--- {service}\n{said}")

    async def _start(self, *services: str) -> list[str]:
        await self.podman.up(*services)
        return await self._well(*services)

    async def _well(self, *services: str) -> list[str]:
        """Wait until each service's own health check says that it is well."""
        waiting = list(services)
        try:
            async with asyncio.timeout(WELL_SECONDS):
                while waiting:
                    waiting = [one for one in waiting if not await self.podman.is_well(one)]
                    if waiting:
                        await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise SmokeError(f"not well after {WELL_SECONDS:.0f} s: {', '.join(waiting)}") from None
        return [f"{len(services)} of {len(services)}"]

    async def _migrate(self) -> list[str]:
        await self.podman.up("migrate")
        code = await self.podman.exit_code("migrate", seconds=60)
        said = await self.podman.logs("migrate")
        if code != 0:
            raise SmokeError(f"migrate ended with {code}: {said}")
        return [line for line in said.splitlines() if line.startswith("applied")]

    async def _order(self, name: str) -> list[str]:
        receipt = await self.orders.place(f"smoke-{name}", ORDER_SECONDS)
        return [f"delivered by {receipt['driver']}"]

    async def _share(self) -> list[str]:
        """Wait until the engine that is to be killed would be missed: shards move slowly."""
        try:
            async with asyncio.timeout(SHARE_SECONDS):
                while len(self._stolen) < SHARE_COUNT:
                    await asyncio.sleep(POLL_SECONDS)
                    self._stolen = await self.orders.owned_by(VICTIM)
        except TimeoutError:
            raise SmokeError(f"{VICTIM} owns {len(self._stolen)} shards only") from None
        return [f"{len(self._stolen)} of them"]

    async def _kill(self) -> list[str]:
        await self.podman.do("kill", VICTIM, "--signal", "KILL")
        self._stolen = await self.orders.owned_by(VICTIM)
        return [f"it still owns {len(self._stolen)} shards on record"]

    async def _order_of_the_victim(self) -> list[str]:
        """Place an order that falls into a shard which nobody serves at this moment."""
        workflow_id = await self.orders.id_in(self._stolen, "smoke-orphan")
        receipt = await self.orders.place(workflow_id, ORDER_SECONDS)
        return [f"{workflow_id} delivered by {receipt['driver']}"]

    async def _revive(self) -> list[str]:
        await self.podman.do("start", VICTIM)
        return await self._well(VICTIM)

    async def _crash(self) -> list[str]:
        """End a service's process from inside: the restart policy must bring it back."""
        first = await self._first_pid("worker-1")
        await self.podman.runner.run("kill", "-KILL", *await self._children(first), seconds=10)
        try:
            async with asyncio.timeout(WELL_SECONDS):
                while await self._first_pid("worker-1") in (0, first):  # noqa: ASYNC110 - podman tells no event
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise SmokeError("worker-1 was not started again") from None
        return await self._well("worker-1")

    async def _first_pid(self, service: str) -> int:
        """Return the pid of a container's first process as the host sees it; 0 if it is down."""
        return int((await self.podman.inspect(service))["State"]["Pid"])

    async def _children(self, pid: int) -> list[str]:
        path = f"/proc/{pid}/task/{pid}/children"
        return (await self.podman.runner.run("cat", path, seconds=10)).split()

    async def _is_closed(self) -> list[str]:
        """Look at the running containers for what the compose file only promises."""
        if (status := await self.orders.status_without_token()) != UNAUTHORIZED:
            raise SmokeError(f"without a token the API answers {status}")
        published = 0
        for service in SERVICES:
            described = await self.podman.inspect(service)
            bindings = described["HostConfig"]["PortBindings"] or {}
            for one in [one for several in bindings.values() for one in several or ()]:
                published += 1
                if one["HostIp"] != "127.0.0.1":
                    raise SmokeError(f"{service} is published on {one['HostIp']!r}")
            if not described["HostConfig"]["ReadonlyRootfs"]:
                raise SmokeError(f"the root of {service} can be written to")
            await self._is_powerless(service, await self._first_pid(service))
        return [f"{published} ports on loopback", f"{len(SERVICES)} without root and capabilities"]

    async def _is_powerless(self, service: str, first: int) -> None:
        """Ask the kernel what the service's processes may do: the init, and what it started."""
        read = self.podman.runner.run
        for pid in (str(first), *await self._children(first)):
            status = await read("cat", f"/proc/{pid}/status", seconds=10)
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            if "0" in fields["Uid"].split():
                raise SmokeError(f"{service} runs as root")
            if {fields["CapEff"], fields["CapBnd"]} != {_NO_CAPABILITIES}:
                raise SmokeError(f"{service} may have capabilities: {fields['CapBnd']}")
            if fields["NoNewPrivs"].strip() != "1":
                raise SmokeError(f"{service} may gain privileges")

    async def _no_secret_in_logs(self) -> list[str]:
        for service in (*SERVICES, "migrate"):
            said = await self.podman.logs(service)
            if any(secret in said for secret in self.setting.secrets):
                raise SmokeError(f"{service} has written a secret into its log")
        return []
