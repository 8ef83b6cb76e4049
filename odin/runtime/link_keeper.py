"""Keeps one link to each of a changing set of addresses."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, Protocol

from odin.runtime.clock import Clock, SystemClock, pause
from odin.runtime.links import Dialect, Link, LinkClosedError, Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from odin.runtime.links import Socket

ADDRESSES_MAX: Final = 256
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 2.0
_LASTING_SECONDS: Final = 5.0
_LOG_EVERY: Final = 10

log = logging.getLogger(__name__)


class LinkUser(Protocol):
    """Who uses the links; every method returns at once."""

    def link_up(self, link: Link, address: str, /) -> None:
        """The link to `address` is open; nothing has been said on it."""
        ...

    def link_message(self, link: Link, message: Message, /) -> None:
        """A message arrived that answers no request."""
        ...

    def link_down(self, link: Link, address: str, /) -> None:
        """The link has ended; its requests have been told."""
        ...


class LinkKeeper:
    """Opens links, and opens them again after random waits of 0.1 to 2 s, while they are wanted.

    Args:
        connect: Opens the WebSocket to an address; raises LinkClosedError.
        dialect: What arrives.
        user: Who uses the links.
        clock: For waits.
        rng: For jitter.
        impatient: See Link.
    """

    def __init__(
        self,
        connect: Callable[[str], Awaitable[Socket]],
        dialect: Dialect,
        user: LinkUser,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        impatient: bool = False,
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._user = user
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret
        self._impatient = impatient
        self._wanted: dict[str, asyncio.Event] = {}
        self._begin: asyncio.Queue[tuple[str, asyncio.Event]] = asyncio.Queue()

    @property
    def wanted(self) -> frozenset[str]:
        """The addresses that are kept now."""
        return frozenset(self._wanted)

    def want(self, addresses: Iterable[str]) -> None:
        """Keep links to exactly these addresses; a link to any other is closed."""
        new = set(addresses)
        if len(new) > ADDRESSES_MAX:
            log.error("too many addresses, keeping some", extra={"addresses": len(new)})
            new = set(sorted(new)[:ADDRESSES_MAX])
        for address in [one for one in self._wanted if one not in new]:  # in order, unlike a set
            self._wanted.pop(address).set()
        for address in sorted(new - self._wanted.keys()):
            ended = self._wanted[address] = asyncio.Event()
            self._begin.put_nowait((address, ended))

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the links until `stop` is set, then close them all."""
        async with asyncio.TaskGroup() as group:
            starter = group.create_task(self._start_all(group), name="links")
            await stop.wait()
            starter.cancel()
            self.want(())

    async def _start_all(self, group: asyncio.TaskGroup) -> None:
        while True:
            address, ended = await self._begin.get()
            group.create_task(self._keep(address, ended), name=f"link {address}")

    async def _keep(self, address: str, ended: asyncio.Event) -> None:
        failures = 0
        while not ended.is_set():
            before = self._clock.boottime()
            if not await self._hold(address, ended, failures):
                failures += 1
            elif self._clock.boottime() - before >= _LASTING_SECONDS:
                failures = 0
            else:
                failures = max(failures, 1)
            if not ended.is_set():
                ceiling = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(failures, 10))
                await pause(self._clock, ended, self._rng.uniform(_FIRST_WAIT_SECONDS, ceiling))

    async def _hold(self, address: str, ended: asyncio.Event, failures: int) -> bool:
        """Open one link and use it to its end. Returns whether it could be opened."""
        socket = await self._open(address, ended, failures)
        if socket is None:
            return False
        link = Link(socket, self._dialect, name=address, pings=True, impatient=self._impatient)
        async with asyncio.TaskGroup() as group:
            closer = group.create_task(_close_when(ended, link), name=f"close {address}")
            try:
                self._user.link_up(link, address)
                reason = await link.run(lambda message: self._user.link_message(link, message))
            finally:
                self._user.link_down(link, address)
                closer.cancel()
        log.info("link ended", extra={"address": address, "why": reason})
        return True

    async def _open(self, address: str, ended: asyncio.Event, failures: int) -> Socket | None:
        """Connect, unless the address is no longer wanted meanwhile."""
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(self._try(address, failures), name=f"open {address}")
            ending = group.create_task(ended.wait(), name=f"unwanted {address}")
            await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            ending.cancel()
        return None if opening.cancelled() else opening.result()

    async def _try(self, address: str, failures: int) -> Socket | None:
        try:
            return await self._connect(address)
        except LinkClosedError as error:
            if failures % _LOG_EVERY == 0:
                log.warning(
                    "no link", extra={"address": address, "tries": failures + 1, "why": str(error)}
                )
            return None


async def _close_when(ended: asyncio.Event, link: Link) -> None:
    await ended.wait()
    link.close("no longer wanted")
