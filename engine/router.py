"""Any engine, any request.

Admit it, decide it here or have the owner decide it, and keep at it to the client's deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from odin.core.decide import Decision
from odin.core.requests import (
    Accepted,
    ClientRequest,
    Outcome,
    Started,
    WaitWorkflow,
)
from odin.core.wire import ShardEntry
from odin.errors import (
    DeadlineExceededError,
    NotOwnerError,
    OdinError,
    OutcomeUnknownError,
    ShardMovingError,
    StoreUnavailableError,
)
from odin.runtime.clock import Clock
from odin.runtime.links import LinkClosedError

from .handler import Handler
from .peers import Peers
from .shards import Shards

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MIN: Final = 0.001
"""Or a rest that no clock can tell from nothing would be slept for again and again."""
FAILING_SECONDS: Final = 1.0
"""So long a request waits for an owner while the database fails; then its caller is told why."""
CUT_OFF_SECONDS: Final = 0.5
"""So long a request waits for a link to an owner that fell silent; then its caller asks another."""
CUT_OFF_RETRY_SECONDS: Final = 0.2
MOVING_RETRY_SECONDS: Final = 0.1
"""Who has waited here for an owner to the end of its time may ask on at once: it waits here again,
and a rest would only keep it from a shard that is back meanwhile."""
Answer = Started | Accepted | Outcome
_AGAIN = (NotOwnerError, OutcomeUnknownError, ShardMovingError, LinkClosedError)


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """A forwarded request under way: whom it is with, and what ends the wait."""

    owner: str
    scope: asyncio.Timeout


class Router:
    """Brings a client's request to the owner of its shard, wherever that is, and back."""

    def __init__(
        self,
        shards: Shards,
        handler: Handler,
        peers: Peers,
        clock: Clock,
        address_of: Callable[[str], str],
        refusal: Callable[[], StoreUnavailableError | None] = lambda: None,
    ) -> None:
        self._shards = shards
        self._handler = handler
        self._peers = peers
        self._clock = clock
        self._address_of = address_of
        self._refusal = refusal
        self.moving_count = 0
        self._asking: dict[int, dict[_Asking, None]] = {}
        self._is_closed = False
        shards.on_map.append(self._moved)

    async def ask(self, request: ClientRequest, timeout_ms: int) -> Answer:
        """Return the committed answer to `request`.

        It is sent again under the same id to the next owner until the time is up, or for a second
        if it has none because the database fails, or half of one if this engine is cut off from the
        owner: another engine may not be, least of all the owner itself.

        Raises:
            ShardMovingError: The shard had no owner that answered in time; retryable.
            StoreUnavailableError: The same, and the database is why.
            OutcomeUnknownError: The last try may have succeeded; the same request id tells.
            OdinError: The owner's refusal.
        """
        began = self._clock.boottime()
        unknown = False
        end: OdinError | None = None
        while end is None:
            left = began + timeout_ms / 1_000 - self._clock.boottime()
            if left <= 0 or self._is_closed:
                break
            try:
                return await self._ask_once(request, left)
            except StoreUnavailableError as error:
                end = _given_up(request, error, unknown=unknown)
                break
            except _AGAIN as error:
                unknown = unknown or not isinstance(error, NotOwnerError)
            except DeadlineExceededError:
                unknown = True
                break
            end = self._hopeless(request, self._clock.boottime() - began, unknown=unknown)
            if end is None:
                await self._clock.sleep(max(min(PAUSE_SECONDS, left), PAUSE_SECONDS_MIN))
        self.moving_count += 1
        raise end or _given_up(request, self._refusal(), unknown=unknown)

    def _hopeless(
        self, request: ClientRequest, waited: float, *, unknown: bool
    ) -> OdinError | None:
        """Return why waiting on here is not worth it, after so many seconds; None: it may be."""
        if waited >= FAILING_SECONDS and (cause := self._refusal()) is not None:
            return _given_up(request, cause, unknown=unknown)
        if waited >= CUT_OFF_SECONDS and (owner := self._cut_off_owner(request)):
            return _cut_off(request, owner, unknown=unknown)
        return None

    def _cut_off_owner(self, request: ClientRequest) -> str:
        """Return the address of the owner if this engine alone may have lost it, else ""."""
        shard_id = self._shards.shard_of(request.namespace, request.workflow_id)
        term = self._shards.terms.get(shard_id)
        if term is not None and term.is_serving:
            return ""
        address = self._address_of(self._shards.entry(shard_id).incarnation)
        return address if address and self._peers.is_cut_off(address) else ""

    async def _ask_once(self, request: ClientRequest, left: float) -> Answer:
        shard_id = self._shards.shard_of(request.namespace, request.workflow_id)
        term = self._shards.terms.get(shard_id)
        if term is not None and term.is_serving:
            written: list[Decision] = []
            try:
                async with asyncio.timeout(self._patience(request, left)):
                    return await self._handler.ask(request, written)
            except TimeoutError:
                if not written:
                    raise NotOwnerError("nothing was decided in time") from None
                raise DeadlineExceededError("no answer in time") from None
        owner = self._shards.entry(shard_id).incarnation
        address = self._address_of(owner)
        if not address or not self._peers.has_link(address):
            raise NotOwnerError(f"shard {shard_id} has no owner that is linked")
        return await self._forward(address, owner, shard_id, request, self._patience(request, left))

    async def _forward(
        self, address: str, owner: str, shard_id: int, request: ClientRequest, patience: float
    ) -> Answer:
        """Ask the owner, until it is the owner no more: one that is cut off never answers."""
        try:
            async with asyncio.timeout(None) as scope:
                asking = _Asking(owner, scope)
                self._asking.setdefault(shard_id, {})[asking] = None
                try:
                    return await self._peers.forward(address, shard_id, request, patience)
                finally:
                    del self._asking[shard_id][asking]
        except TimeoutError:
            raise ShardMovingError(
                f"shard {shard_id} has moved while its owner was asked"
            ) from None

    def _moved(self, entries: Iterable[ShardEntry]) -> None:
        for entry in entries:
            for asking in self._asking.get(entry.shard_id, ()):
                if entry.incarnation not in ("", asking.owner):
                    asking.scope.reschedule(0.0)

    def close(self) -> None:
        """The incarnation is over: what is asked now, or under way, is answered as moving."""
        self._is_closed = True

    def _patience(self, request: ClientRequest, left: float) -> float:
        """Return how long one try may take, in seconds; a wait is answered within its own time."""
        if isinstance(request, WaitWorkflow):
            return max(left, request.wait_ms / 1_000 + 1.0)
        return left


def _given_up(
    request: ClientRequest, cause: StoreUnavailableError | None, *, unknown: bool
) -> OdinError:
    """Return what the caller is told: of a copy that may have had its effect, only that."""
    if unknown and not isinstance(request, WaitWorkflow):
        why = "" if cause is None else f": {cause}"
        return OutcomeUnknownError(
            f"the owner gave no answer in time; ask again with the same request id{why}",
            retry_after=1.0,
        )
    return cause or ShardMovingError(
        "the shard of this workflow id has no owner that answers; ask again",
        retry_after=MOVING_RETRY_SECONDS,
    )


def _cut_off(request: ClientRequest, owner: str, *, unknown: bool) -> OdinError:
    """Return what the caller is told whose owner this engine cannot hear: whom to ask."""
    is_unknown = unknown and not isinstance(request, WaitWorkflow)
    kind = OutcomeUnknownError if is_unknown else ShardMovingError
    return kind(
        f"this engine cannot hear {owner}, which owns the shard of this workflow id; ask that one,"
        " or another, with the same request id",
        retry_after=CUT_OFF_RETRY_SECONDS,
        details={"owner": owner},
    )
