"""What the worker has asked the engines and has not been answered: kept, and repeated until it is.

Everything that must reach a shard's owner goes through here: reports, results, claims, fetches. An
ask is sent to whoever owns its shard now. It stays until it is answered: when the link ends, when
the shard moves, when the engine says that it is not the owner, it is sent again, with the same ids.
The answer that comes first counts; any later one is for an ask that is no more, and is dropped.

No I/O and no clock of its own: where messages go and what time it is are handed in.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from odin.core.wire import NotOwner, ShardEntry
from odin.errors import InvalidArgumentError
from odin.runtime.links import LinkClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REPORT: Final = 0
RESULT: Final = 1
CLAIM: Final = 2
"""The order in which asks of one shard are repeated."""

LATE_SECONDS: Final = 1.0
"""An ask without an answer for this long is late."""
RETRY_SECONDS: Final = 5.0
"""An ask without an answer is sent again after this long even if nothing has changed."""
_NOT_OWNER_WAIT_MAX_SECONDS: Final = 2.0

Key: TypeAlias = tuple[Any, ...]


class Sender(Protocol):
    """A link, as far as the postbox needs it."""

    def request(self, make: Callable[[int], Any], on_answer: Callable[[Any], None]) -> int:
        """Send `make(seq)`; `on_answer` gets the answer or a LinkClosedError."""
        ...


class Ask:
    """One thing to be answered.

    Args:
        key: Of two asks with one key the newer replaces the older.
        shard_id: Whose owner must answer.
        rank: REPORT, RESULT or CLAIM.
        make: Returns the message for a seq; called for each sending.
        on_answer: Called once with the answer.
        on_late: Called once if there is no answer after LATE_SECONDS.
        on_unsendable: Called if the message is larger than a frame may be; the ask is then over.
    """

    __slots__ = (
        "done", "key", "make", "not_owner_count", "on_answer", "on_late", "on_unsendable", "rank",
        "retry_at", "sender", "sendings", "shard_id",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - a plain record
        self,
        key: Key,
        shard_id: int,
        rank: int,
        make: Callable[[int], Any],
        on_answer: Callable[[Any], None],
        *,
        on_late: Callable[[], None] | None = None,
        on_unsendable: Callable[[InvalidArgumentError], None] | None = None,
    ) -> None:
        self.key = key
        self.shard_id = shard_id
        self.rank = rank
        self.make = make
        self.on_answer = on_answer
        self.on_late = on_late
        self.on_unsendable = on_unsendable
        self.sender: Sender | None = None
        self.sendings = 0
        self.retry_at = 0.0
        self.done = False
        self.not_owner_count = 0

    @property
    def sent(self) -> bool:
        """Whether it has been sent at all."""
        return self.sendings > 0

    def end(self) -> None:
        """Let go of everything: the postbox's lists keep what is done for a second."""
        self.done = True
        self.make = self.on_answer = _nothing
        self.on_late = self.on_unsendable = self.sender = None


class Postbox:
    """The asks of one worker.

    Args:
        route: Returns the link to a shard's owner, or None when there is none.
        now: Seconds that only go forward.
        learn: Called with what a NotOwner says of its shard.
    """

    def __init__(
        self,
        route: Callable[[int], Sender | None],
        now: Callable[[], float],
        learn: Callable[[ShardEntry], None],
    ) -> None:
        self._route = route
        self._now = now
        self._learn = learn
        self._asks: dict[Key, Ask] = {}
        self._by_shard: dict[int, dict[Key, Ask]] = {}
        self._fresh: deque[tuple[float, Ask]] = deque()
        self._retries: list[tuple[float, int, Ask]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._asks)

    def has(self, key: Key) -> bool:
        """Whether the ask of this key is unanswered."""
        return key in self._asks

    @property
    def shards(self) -> set[int]:
        """The shards of which something is unanswered."""
        return {shard_id for shard_id, asks in self._by_shard.items() if asks}

    def post(self, ask: Ask) -> None:
        """Send the ask, now or as soon as its shard has an owner with a link."""
        old = self._asks.get(ask.key)
        if old is not None:
            self.withdraw(old.key)
        self._asks[ask.key] = ask
        shard = self._by_shard.get(ask.shard_id)
        if shard is None:
            shard = self._by_shard[ask.shard_id] = {}
        shard[ask.key] = ask
        self._fresh.append((self._now() + LATE_SECONDS, ask))
        self._send(ask)

    def withdraw(self, key: Key) -> Ask | None:
        """Forget the ask; an answer that still comes is dropped."""
        ask = self._asks.pop(key, None)
        if ask is not None:
            ask.end()
            self._by_shard[ask.shard_id].pop(key, None)
        return ask

    def repeat(self, shard_ids: Iterable[int]) -> None:
        """Send everything unanswered of these shards: reports, then results, then claims."""
        asks = [ask for shard_id in shard_ids for ask in self._by_shard.get(shard_id, {}).values()]
        asks.sort(key=_rank)
        for ask in asks:
            if not ask.done:
                self._send(ask)

    def tick(self) -> None:
        """Notice what is late, send again what has waited long enough. Call every 0.1 s."""
        now = self._now()
        fresh = self._fresh
        while fresh and fresh[0][0] <= now:
            ask = fresh.popleft()[1]
            if not ask.done:
                self._retry_in(ask, RETRY_SECONDS - LATE_SECONDS)
                if ask.on_late is not None:
                    ask.on_late()
        while self._retries and self._retries[0][0] <= now:
            at, _, ask = heappop(self._retries)
            if not ask.done and at == ask.retry_at:  # else there is a later entry for it
                self._retry_in(ask, RETRY_SECONDS)
                self._send(ask)

    def _send(self, ask: Ask) -> None:
        sender = self._route(ask.shard_id)
        ask.sender = sender
        if sender is None:
            return
        ask.sendings += 1
        try:
            sender.request(ask.make, partial(self._answered, ask, sender))
        except InvalidArgumentError as error:
            on_unsendable = ask.on_unsendable
            self.withdraw(ask.key)
            if on_unsendable is None:
                raise
            on_unsendable(error)

    def _answered(self, ask: Ask, sender: Sender, answer: Any) -> None:  # noqa: ANN401 - a wire message
        if ask.done:
            return
        kind = type(answer)
        if kind is NotOwner:
            if ask.sender is sender:
                self._refused(ask, answer)
        elif kind is LinkClosedError:
            if ask.sender is sender:
                ask.sender = None
        else:
            on_answer = ask.on_answer
            self.withdraw(ask.key)
            on_answer(answer)

    def _refused(self, ask: Ask, answer: NotOwner) -> None:
        """The engine is not the owner: ask whom it names, or the same again a little later."""
        ask.sender = None
        ask.not_owner_count += 1
        before = ask.sendings
        self._learn(answer.shard)
        if ask.sendings == before and not ask.done:
            wait = answer.retry_ms / 1_000 * 2 ** min(ask.not_owner_count - 1, 10)
            self._retry_in(ask, min(wait, _NOT_OWNER_WAIT_MAX_SECONDS))

    def _retry_in(self, ask: Ask, seconds: float) -> None:
        self._order += 1
        ask.retry_at = self._now() + seconds
        heappush(self._retries, (ask.retry_at, self._order, ask))


def _nothing(_: object) -> None:
    """Stand in for what an ask no longer needs."""


def _rank(ask: Ask) -> int:
    return ask.rank
