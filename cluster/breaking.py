"""Breaks a running local cluster on purpose, within bounds, and heals it again.

Everything acts by the state file on processes that are proven to be the recorded ones. What does
not heal by itself is on record before it bites (`undo`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from odin.runtime.postgres import Session, connect
from odin.runtime.sql import load_queries

from .identity import fingerprint, is_same
from .proxy.client import ProxyClient, ProxyDownError
from .proxy.faults import Fault, LinkName, Order
from .proxying import NAME as PROXY
from .servers.common import ServerError, run
from .servers.rabbitmq import PROGRAMS
from .state import read_secrets, read_state
from .undo import Broken, record, recorded, strike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.runtime.clock import Clock

    from .place import Place
    from .proxy.exchange import LinkView
    from .state import ClusterState, PartState

SECONDS_DEFAULT: Final = 30.0
SECONDS_MAX: Final = 600.0
CONTROL_SECONDS: Final = 30.0
SQL: Final = load_queries(__package__)
SESSION: Final = Session(statement_timeout=5.0, command_timeout=6.0)
# A watermark that any broker is above; and the one that our nodes are started with.
ALARM: Final = ("set_vm_memory_high_watermark", "0.00001")
CALM: Final = ("set_vm_memory_high_watermark", "absolute", "1GB")
# A server's own way to end in order; all other parts end by SIGTERM.
_ORDERLY: Final = {"postgres": signal.SIGINT}
_NAMES: Final = {"rabbitmq": "broker"}


class NotBreakableError(FailedPreconditionError):
    """This cannot be broken here."""

    reason = "NOT_BREAKABLE"


@dataclass(frozen=True, slots=True)
class Breaker:
    """Breaks and heals the cluster of one place."""

    place: Place
    clock: Clock

    # --- processes --------------------------------------------------------------------------------

    def kill(self, names: Sequence[str]) -> Broken:
        """SIGKILL the parts, as near to one instant as can be; the supervisor starts them again.

        Raises:
            OdinError: a part is not there, or not ours.
        """
        parts = [self._part(name) for name in names]
        families = [_family(_pid_of(part)) for part in parts]
        for family in families:
            _signal(family, signal.SIGKILL)
        return self._once([p.name for p in parts], f"killed {_listed(names)}")

    def restart(self, names: Sequence[str]) -> Broken:
        """Ask the parts to end in order; the supervisor starts them again.

        Raises:
            OdinError: a part is not there, or not ours.
        """
        for part in [self._part(name) for name in names]:
            number = _ORDERLY.get(part.name, signal.SIGTERM)
            _signal([(_pid_of(part), part.fingerprint)], number)
        return self._once(list(names), f"told {_listed(names)} to end")

    def freeze(self, names: Sequence[str], seconds: float = SECONDS_DEFAULT) -> Broken:
        """SIGSTOP the parts, with all of their processes, for a bounded time.

        Raises:
            OdinError: a part is not there, or not ours.
        """
        parts = [self._part(name) for name in names]
        processes = [one for part in parts for one in _family(_pid_of(part))]
        broken = self._entry("frozen", list(names), f"froze {_listed(names)}", seconds)
        broken.processes = processes
        record(self.place, broken)
        _signal(processes, signal.SIGSTOP)
        return broken

    def guard(self, names: Sequence[str], seconds: float = SECONDS_DEFAULT) -> Broken:
        """Record the parts as frozen and leave them be, for whoever stops them time and again.

        Raises:
            OdinError: a part is not there, or not ours.
        """
        parts = [self._part(name) for name in names]
        broken = self._entry("frozen", list(names), f"starves {_listed(names)}", seconds)
        broken.processes = [one for part in parts for one in _family(_pid_of(part))]
        record(self.place, broken)
        return broken

    # --- servers ----------------------------------------------------------------------------------

    async def alarm(self, seconds: float = SECONDS_DEFAULT) -> Broken:
        """Raise RabbitMQ's memory alarm: it takes no message until it is called off.

        Raises:
            OdinError: there is no RabbitMQ of ours.
            ServerError: rabbitmqctl failed.
        """
        pid = _pid_of(self._part("rabbitmq"))
        broken = self._entry("alarm", ["rabbitmq"], "raised RabbitMQ's memory alarm", seconds)
        record(self.place, broken)
        await _rabbitmqctl(pid, *ALARM)
        return broken

    async def disconnect(self, name: str = "postgres") -> Broken:
        """Terminate every backend of odin's in Postgres; the clients connect again.

        Raises:
            OdinError: it is not Postgres that is named.
            asyncpg.PostgresError, OSError: Postgres cannot be reached.
        """
        if name != "postgres":
            raise InvalidArgumentError("only postgres has backends to be terminated")
        dsn = read_secrets(self.place).postgres_dsn
        connection = await connect(dsn, application_name="breaker", session=SESSION)
        try:
            count = await connection.fetchval(SQL["terminate_backends"])
        finally:
            await connection.close(timeout=2)
        return self._once(["postgres"], f"terminated {count} backends of postgres")

    # --- links ------------------------------------------------------------------------------------

    async def links(
        self, part: str, *, to: str = "", from_: str = "", is_client_left_out: bool = True
    ) -> list[LinkName]:
        """Return the links of a part: to one dependency, from one other part, or all.

        Args:
            part: Whose. "engines" and "workers" stand for all of them, at either end.
            to: The dependency; empty with an empty `from_`: all links, both ways.
            from_: Who reaches the part.
            is_client_left_out: Whether the load's own links stay, unless it is named.

        Raises:
            NotFoundError: there is no such link.
            ProxyDownError: the cluster has no proxy, or it does not answer.
        """
        async with self._proxy() as proxy:
            names = [one.name for one in await proxy.links()]
        mine, other = _matcher(part), _matcher(to or from_)
        found = []
        for name in names:
            out = mine(name.part) and not from_ and (not to or other(name.dependency))
            into = mine(name.dependency) and not to and (not from_ or other(name.part))
            named = "load" in (part, to, from_) or not is_client_left_out
            if (out or into) and (named or name.part != "load"):
                found.append(name)
        if not found:
            known = ", ".join(sorted({str(one) for one in names if one.part == part})) or "none"
            raise NotFoundError(f"no link of {part} fits; it has: {known}")
        return found

    async def break_links(
        self, links: Sequence[LinkName], fault: Fault, seconds: float = SECONDS_DEFAULT
    ) -> Broken:
        """Let a fault begin on the links, for a bounded time.

        Raises:
            OdinError: the fault makes no sense, or there is no proxy.
        """
        order = Order(links=links, fault=fault, seconds=seconds)
        order.check()
        what = f"{fault.mode.replace('_', '-')} on {_listed([str(one) for one in links])}"
        concerned = sorted({one.part for one in links} | {one.dependency for one in links})
        broken = self._entry("links", concerned, what, seconds)
        async with self._proxy() as proxy:
            broken.fault_id = await proxy.begin(order)
        record(self.place, broken)  # the proxy heals it by itself, whoever is killed before this
        return broken

    async def link_views(self) -> list[LinkView]:
        """Return every link as it is.

        Raises:
            OdinError: there is no proxy, or it does not answer.
        """
        async with self._proxy() as proxy:
            return await proxy.links()

    async def match_count(self, broken: Broken) -> int:
        """Return how often the pattern of a fault has been found; 0 once it is healed.

        Raises:
            ProxyDownError: the proxy does not answer.
        """
        async with self._proxy() as proxy:
            found = [one for one in await proxy.faults() if one.id == broken.fault_id]
        return found[0].match_count if found else 0

    # --- healing ----------------------------------------------------------------------------------

    def broken(self) -> list[Broken]:
        """Return what is broken at the moment."""
        return recorded(self.place)

    async def heal(self, wanted: Callable[[Broken], bool] = lambda _: True) -> list[Broken]:
        """Heal what is on record and wanted; return it.

        Raises:
            ServerError: an alarm could not be called off.
        """
        healed = []
        for one in self.broken():
            if wanted(one):
                await self._heal_one(one)
                strike(self.place, one.id)
                healed.append(one)
        return healed

    async def heal_due(self) -> list[Broken]:
        """Heal what is due.

        Raises:
            ServerError: an alarm could not be called off.
        """
        now = self.clock.boottime()
        return await self.heal(lambda one: one.until <= now)

    async def forget_all(self) -> None:
        """Forget the record of an earlier cluster; whatever it froze and still lives goes on."""
        for one in self.broken():
            _signal(one.processes, signal.SIGCONT)
            strike(self.place, one.id)

    async def _heal_one(self, one: Broken) -> None:
        match one.kind:
            case "frozen":
                _signal(one.processes, signal.SIGCONT)
            case "links":
                try:
                    async with self._proxy() as proxy:
                        await proxy.heal(one.fault_id)
                except ProxyDownError:
                    return  # its faults went with it
            case "alarm":
                state = read_state(self.place)
                broker = (
                    next((p for p in state.parts if p.name == "rabbitmq"), None) if state else None
                )
                if broker is not None and broker.is_alive and broker.pid is not None:
                    await _rabbitmqctl(broker.pid, *CALM)
            case "once":
                return

    # --- helpers ----------------------------------------------------------------------------------

    def _entry(self, kind: str, parts: list[str], what: str, seconds: float) -> Broken:
        if not 0 < seconds <= SECONDS_MAX:
            raise InvalidArgumentError(f"a fault lasts above 0 and up to {SECONDS_MAX:.0f} s")
        return Broken(
            id=secrets.token_hex(3),
            kind=kind,  # type: ignore[arg-type] # of the callers above
            parts=parts,
            what=what,
            until=self.clock.boottime() + seconds,
        )

    def _once(self, parts: list[str], what: str) -> Broken:
        return self._entry("once", parts, what, 1.0)

    def _state(self) -> ClusterState:
        state = read_state(self.place)
        if state is None or not state.is_supervised:
            raise NotBreakableError(f"no cluster runs in {self.place.folder}: `odin up` starts one")
        return state

    def _part(self, name: str) -> PartState:
        parts = self._state().parts
        part = next((one for one in parts if one.name == name), None)
        if part is None:
            known = ", ".join(one.name for one in parts)
            raise NotFoundError(f"there is no part {name!r}; there are {known}")
        if not part.is_alive:
            raise NotBreakableError(f"{name} has no process of ours at the moment ({part.phase})")
        return part

    def _proxy(self) -> ProxyClient:
        state = self._state()
        address = next((one.address for one in state.parts if one.name == PROXY), "")
        if not address:
            raise NotBreakableError(
                "links can be broken only in a cluster with proxies: `odin up --proxies`"
            )
        return ProxyClient(address, read_secrets(self.place).proxy_token)


def expanded(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names with "engines", "workers" and "mocks" replaced by all of that kind.

    Args:
        names: As the user gives them.
        known: Every part of the cluster.
    """
    groups = {"engines": "engine-", "workers": "worker-"}
    found: list[str] = []
    for name in names:
        prefix = groups.get(name)
        found += [one for one in known if one.startswith(prefix)] if prefix else [name]
    return list(dict.fromkeys(found))


def _matcher(name: str) -> Callable[[str], bool]:
    if name in ("engines", "workers"):
        return lambda one: one.startswith(f"{name[:-1]}-")
    return lambda one: one == _NAMES.get(name, name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _pid_of(part: PartState) -> int:
    assert part.pid is not None, "is_alive was asked"  # noqa: S101 - for the type checker
    return part.pid


def _family(pid: int) -> list[tuple[int, str]]:
    """Return the process and everything below it, as (pid, fingerprint)."""
    found = [pid]
    for one in found:
        for listing in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in listing.read_text(encoding="ascii").split()]
            except OSError:  # it has ended
                continue
    return [(one, fingerprint(one)) for one in found]


def _signal(processes: Sequence[tuple[int, str]], number: signal.Signals) -> None:
    for pid, mark in processes:
        if is_same(pid, mark):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


async def _rabbitmqctl(pid: int, *arguments: str) -> None:
    """Run rabbitmqctl against the node of this process, with the environment that it has itself."""
    raw = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
    pairs = (one.decode(errors="replace").partition("=") for one in raw.split(b"\0"))
    environ = {name: value for name, _, value in pairs if name}
    node = environ.get("RABBITMQ_NODENAME")
    if not node:
        raise ServerError("the broker's process does not say which node it is")
    command = [str(PROGRAMS / "rabbitmqctl"), "--quiet", "--node", node, *arguments]
    await run(command, environ, CONTROL_SECONDS)
