"""This node's lease: registered per incarnation, renewed every 3 s, trusted for 8 s from sending.

    register ──▶ alive ──renewals──▶ alive ──(SIGTERM)──▶ draining ──last act──▶ dead
                    └──(a renewal finds the lease over)──▶ expired: this incarnation is finished

Expiry is final: whoever finds the lease over marks the row dead, and this process goes on under a
    new incarnation or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from odin.core.lease import Lease, Renewal
from odin.errors import FailedPreconditionError, OdinError, UnavailableError
from odin.runtime.clock import Clock, pause

from .store.values import NodeIdTaken, Renewed

log = logging.getLogger(__name__)

CLASH_SECONDS_MAX = 11.0


class LeaseStore(Protocol):
    """The store as the lease sees it."""

    async def register_node(
        self, incarnation: str, node_id: str, address: str
    ) -> Renewed | NodeIdTaken:
        """Write the node's row, or say who has the node_id."""
        ...

    async def renew(self, incarnation: str) -> Renewed | None:
        """Prolong the lease; None if it is over."""
        ...

    async def mark_dead_expired(self) -> list[str]:
        """Mark nodes dead whose lease is over."""
        ...


class LeaseExpiredError(UnavailableError):
    """The lease is over: this incarnation may do nothing any more."""

    reason = "LEASE_EXPIRED"


class NodeIdTakenError(FailedPreconditionError):
    """Another process with this node_id is alive."""

    reason = "NODE_ID_TAKEN"


class Membership:
    """One incarnation's place in the cluster."""

    def __init__(
        self, store: LeaseStore, clock: Clock, *, incarnation: str, node_id: str, address: str
    ) -> None:
        self._store = store
        self._clock = clock
        self.incarnation = incarnation
        self.node_id = node_id
        self.address = address
        self.lease = Lease()
        self.renewal_seconds = 0.0
        self.expired = asyncio.Event()
        self._fails = False

    def now_us(self) -> int:
        """Return a lower bound of the cluster's time."""
        return self.lease.cluster_time_us(self._clock.boottime())

    def may_serve(self) -> bool:
        """Return whether an answer from memory may leave now."""
        return not self.expired.is_set() and self.lease.may_serve(self._clock.boottime())

    async def register(self) -> None:
        """Write this incarnation's row and begin its lease.

        A process of the same node_id that has died is waited for, 11 s at most.

        Raises:
            NodeIdTakenError: It is alive: it has renewed its lease meanwhile.
        """
        waited_since = self._clock.boottime()
        first: NodeIdTaken | None = None
        while True:
            sent_at = self._clock.boottime()
            answer = await self._store.register_node(self.incarnation, self.node_id, self.address)
            if isinstance(answer, Renewed):
                self._take(sent_at, answer)
                return
            if first is None or first.incarnation != answer.incarnation:
                first = answer
            late = self._clock.boottime() - waited_since > CLASH_SECONDS_MAX
            if answer.lease_until_us > first.lease_until_us or late:
                raise NodeIdTakenError(
                    f"node id {self.node_id} is in use by another engine that is alive; give this"
                    " one another ODIN_NODE_ID, or stop the other"
                )
            log.info("waiting for the old lease of this node id", extra={"node_id": self.node_id})
            await self._clock.sleep(0.5)
            await self._store.mark_dead_expired()

    async def run(self, stop: asyncio.Event) -> None:
        """Renew until told to stop, or until the lease is over: then `expired` is set."""
        while not stop.is_set():
            try:
                await self._renew()
            except LeaseExpiredError as error:
                log.error("lease expired", extra={"detail": str(error)})  # noqa: TRY400 - the reason is all there is
                await stop.wait()
                return
            now = self._clock.boottime()
            await pause(self._clock, stop, max(0.2, self.lease.renew_at(now) - now))

    async def _renew(self) -> None:
        sent_at = self._clock.boottime()
        try:
            renewed = await self._store.renew(self.incarnation)
        except OdinError as error:
            level = logging.DEBUG if self._fails else logging.WARNING
            log.log(level, "renewal failed", extra={"detail": str(error)})
            self._fails = True
            return
        self._fails = False
        if renewed is None:
            self.expired.set()
            raise LeaseExpiredError(f"the lease of {self.node_id} ({self.incarnation}) is over")
        self._take(sent_at, renewed)

    def _take(self, sent_at: float, renewed: Renewed) -> None:
        received_at = self._clock.boottime()
        self.renewal_seconds = received_at - sent_at
        self.lease = self.lease.renewed(Renewal(sent_at, received_at, renewed.db_now_us))
