"""One link: its listener, its connections and the faults that it has at the moment."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from .conversation import CONNECT_SECONDS, Conversation
from .faults import TRIGGERED, Fault, Flow, flow_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .settings import Wire

HOST: Final = "127.0.0.1"
BACKLOG: Final = 512
AGAIN_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


class Gateway:
    """Listens for one part, and carries its connections to one dependency."""

    def __init__(self, wire: Wire, group: asyncio.TaskGroup) -> None:
        self.wire = wire
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._faults: dict[str, Fault] = {}
        self._spent: set[str] = set()
        self._is_closed = False
        self._switching = asyncio.Lock()
        self.conversations: set[Conversation] = set()
        self.is_postgres = wire.dependency == "postgres"
        self.up, self.down = Flow(), Flow()
        self.bytes_up = self.bytes_down = self.accepted = 0
        self.on_triggered: Callable[[str], None] = lambda _: None

    @property
    def faults(self) -> list[Fault]:
        """What is wrong with the link."""
        return list(self._faults.values())

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        self._server = await self._loop.create_server(
            self._accepted, HOST, self.wire.port, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Stop listening and end every connection."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for one in list(self.conversations):
            one.reset()

    async def add(self, fault_id: str, fault: Fault) -> None:
        """Let a fault begin; returns when it bites."""
        self._faults[fault_id] = fault
        self._apply()
        match fault.mode:
            case "refuse":
                await self._listen_or_not()
                self._reset_all()
            case "reset":
                self._reset_all()
            case "half_open":
                for one in list(self.conversations):
                    one.half_open(fault_id, is_part_deaf=fault.direction == "down")
            case _:
                pass

    async def heal(self, fault_id: str) -> None:
        """Let a fault end; returns when the link is open again."""
        if self._faults.pop(fault_id, None) is None:
            return
        self._spent.discard(fault_id)
        self._apply()
        for one in list(self.conversations):
            one.healed(fault_id)
        await self._listen_or_not()
        for one in list(self.conversations):
            self._dial_if_open(one)

    # --- what connections tell --------------------------------------------------------------------

    def admit(self, conversation: Conversation) -> None:
        """Take a connection that was accepted, and dial for it unless the link is held."""
        self.accepted += 1
        self.conversations.add(conversation)
        if self._has("reset", "refuse"):
            conversation.reset()
            return
        self._dial_if_open(conversation)

    def forget(self, conversation: Conversation) -> None:
        """Both ends of a connection have gone."""
        self.conversations.discard(conversation)

    def triggered(self, fault_id: str) -> None:
        """A pattern has been found."""
        fault = self._faults.get(fault_id)
        if fault is not None and fault.is_once:
            self._spent.add(fault_id)
            self._apply()
        self.on_triggered(fault_id)

    def spend(self, fault_id: str) -> None:
        """The pattern has been found on another link of the same fault: once is enough."""
        if fault_id in self._faults and fault_id not in self._spent:
            self._spent.add(fault_id)
            self._apply()

    # --- the rest ---------------------------------------------------------------------------------

    def _accepted(self) -> asyncio.Protocol:
        return Conversation(self, self._loop).client

    def _apply(self) -> None:
        """Work out what the faults make of the link, and tell its connections."""
        live = [
            (fault_id, one)
            for fault_id, one in self._faults.items()
            if not (one.mode in TRIGGERED and fault_id in self._spent)
        ]
        self.up, self.down = flow_of(live, "up"), flow_of(live, "down")
        for one in list(self.conversations):
            one.refresh()

    def _has(self, *modes: str) -> bool:
        return any(one.mode in modes for one in self._faults.values())

    def _reset_all(self) -> None:
        for one in list(self.conversations):
            one.reset()

    def _dial_if_open(self, conversation: Conversation) -> None:
        is_held = self.up.is_held or self.down.is_held  # a handshake needs both directions
        if conversation.is_waiting and not is_held and not conversation.is_dialled:
            conversation.is_dialled = True
            self._group.create_task(self._dial(conversation), name=f"dial {self.wire.name}")

    async def _dial(self, conversation: Conversation) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_connection(
                    lambda: conversation.server, self.wire.host, self.wire.target_port
                )
        except (OSError, TimeoutError) as error:
            log.debug("not reached", extra={"link": str(self.wire.name), "detail": str(error)})
            conversation.reset()

    async def _listen_or_not(self) -> None:
        """Have a listener exactly while no fault refuses."""
        async with self._switching:
            while self._has("refuse") != (self._server is None) and not self._is_closed:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                    continue
                try:
                    await self.open()
                except OSError as error:  # an outgoing connection has the port for a moment
                    log.warning(
                        "port taken", extra={"link": str(self.wire.name), "why": str(error)}
                    )
                    await asyncio.sleep(AGAIN_SECONDS)
