"""The heartbeats of one attempt.

They are throttled, and sent by themselves for async activities. Here is also the judgement of when
the owner must believe this worker dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odin.core.wire import Heartbeat

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from odin.core.payload import Payload
    from odin.core.wire import ActivityTaskGranted

_SHARE: Final = 0.8
_AUTO_SHARE: Final = 0.5
_UNASKED_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 60.0
TAKEOVER_SECONDS: Final = 13.0
"""How long a healthy attempt waits for a dead owner's successor: a lease of 10 s, and 3 s to take.

The new owner begins all heartbeat clocks anew, so that ending the attempt before would be the loss
of healthy work. Only a worker that reaches no engine at all cannot hope for that, and stops at 0.8
of the heartbeat timeout.
"""


class Heartbeats:
    """Throttles: the newest details win, and go out at most once per interval.

    Args:
        grant: The attempt.
        send: Sends to the owner.
        loop: Where sending happens.
        auto: Whether to beat without being asked, if there is a heartbeat timeout.
    """

    __slots__ = (
        "_auto", "_contact_at", "_ended", "_grant", "_interval", "_last", "_loop", "_newest",
        "_send", "_timeout", "_timer", "_wake",
    )  # fmt: skip

    def __init__(
        self,
        grant: ActivityTaskGranted,
        send: Callable[[Heartbeat], bool],
        loop: asyncio.AbstractEventLoop,
        *,
        auto: bool,
    ) -> None:
        self._grant = grant
        self._send = send
        self._timeout = None if grant.heartbeat_ms is None else grant.heartbeat_ms / 1_000
        self._auto = auto and self._timeout is not None
        share = _AUTO_SHARE if self._auto else _SHARE
        wanted = _UNASKED_SECONDS if self._timeout is None else share * self._timeout
        self._interval = min(wanted, _LONGEST_SECONDS)
        self._loop = loop
        self._newest: tuple[Payload, ...] | None = None
        self._last = grant.heartbeat_details
        self._timer: asyncio.TimerHandle | None = None
        self._wake = False
        self._ended = False
        self._contact_at: float | None = None
        if self._auto:
            self._timer = self._loop.call_later(self._interval, self._due)

    def beat(self, details: tuple[Payload, ...]) -> None:
        """Take a heartbeat of the activity; from any thread."""
        self._newest = details
        if self._timer is None and not self._wake and not self._ended:
            self._wake = True
            self._loop.call_soon_threadsafe(self._now)

    def _now(self) -> None:
        self._wake = False
        if self._timer is None and self._newest is not None and not self._ended:
            self._say()
            self._timer = self._loop.call_later(self._interval, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._newest is not None or self._auto:
            self._say()
            self._timer = self._loop.call_later(self._interval, self._due)

    def _say(self) -> None:
        details, self._newest = self._newest, None
        if details is not None:
            self._last = details  # a beat without news repeats them, lest it take them back
        grant = self._grant
        header = grant.header
        beat = Heartbeat(
            header.shard_id, header.run_id, grant.command_id, grant.claim_token, self._last
        )
        if not self._send(beat) and details is not None and self._newest is None:
            self._newest = details  # nobody to tell now: with the next one

    def end(self, *, flush: bool) -> None:
        """The attempt is over; with `flush` details not sent yet are, for the next attempt."""
        if self._timer is not None:
            self._timer.cancel()
        self._ended = True
        if flush and self._newest is not None:
            self._say()

    def lost_contact(self, linked: bool, now: float, *, isolated: bool) -> bool:  # noqa: FBT001 - a fact
        """Return whether the attempt must stop because its owner cannot be told that it lives."""
        if self._timeout is None:
            return False
        if linked or self._contact_at is None:
            self._contact_at = now
            return False
        allowed = _SHARE * self._timeout
        if not isolated:
            allowed = max(allowed, TAKEOVER_SECONDS)
        return now - self._contact_at > allowed
