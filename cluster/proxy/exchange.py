"""All links of a cluster, and the faults that they have: each ends by itself after its time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from odin.errors import NotFoundError

from .faults import Fault, LinkName, Order
from .gateway import Gateway

if TYPE_CHECKING:
    from .settings import Wire

log = logging.getLogger(__name__)


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """One link as it is.

    Attributes:
        part: Who connects.
        dependency: To whom.
        port: Where the proxy listens for it.
        open_count: Connections now.
        accepted_count: Connections ever.
        bytes_up: From the part, ever.
        bytes_down: To the part, ever.
        faults: What is wrong with it.
    """

    part: str
    dependency: str
    port: int
    open_count: int
    accepted_count: int
    bytes_up: int
    bytes_down: int
    faults: list[Fault]

    @property
    def name(self) -> LinkName:
        """The link's name."""
        return LinkName(self.part, self.dependency)


class FaultView(msgspec.Struct, frozen=True, kw_only=True):
    """One fault as it is.

    Attributes:
        id: Names it.
        links: What it concerns.
        fault: What it is.
        seconds_left: When it heals by itself.
        match_count: How often its pattern has been found.
    """

    id: str
    links: Sequence[LinkName]
    fault: Fault
    seconds_left: float
    match_count: int


@dataclass(slots=True)
class _Active:
    order: Order
    gateways: list[Gateway]
    until: float
    timer: asyncio.TimerHandle
    match_count: int = 0


class Exchange:
    """The links, by name."""

    def __init__(self, wires: Sequence[Wire]) -> None:
        self._wires = wires
        self._gateways: dict[LinkName, Gateway] = {}
        self._active: dict[str, _Active] = {}
        self._ids = itertools.count(1)
        self._group: asyncio.TaskGroup | None = None
        self.is_open = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Carry everything until told to stop.

        Raises:
            OSError: a port is taken.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            for wire in self._wires:
                gateway = Gateway(wire, group)
                await gateway.open()
                gateway.on_triggered = self._triggered
                self._gateways[wire.name] = gateway
            self.is_open.set()
            await stop.wait()
            for active in self._active.values():
                active.timer.cancel()
            for gateway in self._gateways.values():
                await gateway.close()

    def links(self) -> list[LinkView]:
        """Return every link as it is."""
        return [
            LinkView(
                part=one.wire.part,
                dependency=one.wire.dependency,
                port=one.wire.port,
                open_count=len(one.conversations),
                accepted_count=one.accepted,
                bytes_up=one.bytes_up,
                bytes_down=one.bytes_down,
                faults=one.faults,
            )
            for one in self._gateways.values()
        ]

    def faults(self) -> list[FaultView]:
        """Return every fault that is not over."""
        now = asyncio.get_running_loop().time()
        return [
            FaultView(
                id=fault_id,
                links=active.order.links,
                fault=active.order.fault,
                seconds_left=max(0.0, active.until - now),
                match_count=active.match_count,
            )
            for fault_id, active in self._active.items()
        ]

    async def begin(self, order: Order) -> str:
        """Let a fault begin on all its links; return its id.

        Raises:
            InvalidArgumentError: the order makes no sense.
            NotFoundError: there is no such link.
        """
        order.check()
        unknown = [str(name) for name in order.links if name not in self._gateways]
        if unknown:
            raise NotFoundError(f"no such link: {', '.join(unknown)}")
        loop = asyncio.get_running_loop()
        fault_id = f"f{next(self._ids)}"
        gateways = [self._gateways[name] for name in dict.fromkeys(order.links)]
        timer = loop.call_later(order.seconds, self._expire, fault_id)
        until = loop.time() + order.seconds
        self._active[fault_id] = _Active(order, gateways, until, timer)
        for gateway in gateways:
            await gateway.add(fault_id, order.fault)
        log.info(
            "fault begins",
            extra={
                "fault": fault_id,
                "mode": order.fault.mode,
                "links": [str(name) for name in order.links],
                "seconds": order.seconds,
            },
        )
        return fault_id

    async def heal(self, fault_id: str) -> bool:
        """Let a fault end; return whether it had not ended before."""
        active = self._active.pop(fault_id, None)
        if active is None:
            return False
        active.timer.cancel()
        for gateway in active.gateways:
            await gateway.heal(fault_id)
        log.info("fault healed", extra={"fault": fault_id, "match_count": active.match_count})
        return True

    async def heal_all(self) -> int:
        """Let every fault end; return how many there were."""
        return sum([await self.heal(fault_id) for fault_id in list(self._active)])

    def _expire(self, fault_id: str) -> None:
        assert self._group is not None, "running"  # noqa: S101 - for the type checker
        self._group.create_task(self.heal(fault_id), name=f"heal {fault_id}")

    def _triggered(self, fault_id: str) -> None:
        active = self._active.get(fault_id)
        if active is None:
            return
        active.match_count += 1
        log.info("pattern found", extra={"fault": fault_id})
        if active.order.fault.is_once:
            for gateway in active.gateways:
                gateway.spend(fault_id)
