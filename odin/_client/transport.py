"""Calls to a cluster: any engine will do, the same call goes out again until its fate is known.

A write carries a request id, so that copies of it have one effect. A copy whose answer never came
may still take effect; a later refusal of another copy is therefore no proof that nothing happened,
and is not reported as one: the call goes on asking, and at the deadline says that it does not know.
Of a copy whose refusal says that it changed nothing, nothing is unknown; a read never has a fate.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from odin.core.payload import REQUEST_BYTES_MAX
from odin.errors import (
    InvalidArgumentError,
    NotLeaderError,
    OdinError,
    OutcomeUnknownError,
    PayloadError,
    ResourceExhaustedError,
    UnavailableError,
)

from .problems import error_of_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

DEFAULT_ADDRESS: Final = "http://127.0.0.1:7300"
CONNECT_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_COPY_SECONDS_MIN: Final = 1.0
_COPY_SECONDS_MAX: Final = 5.0
_NAMED_SECONDS: Final = 1.0
"""A copy to an owner that another engine cannot hear: it may be frozen as well as cut off."""
_SILENT_SECONDS: Final = 5.0
"""So long an engine that gave no answer to one call is asked last by all of them."""
_LAST_COPY_SECONDS: Final = 0.5
"""With less time than this no further copy goes out if all that is known is definite: cut short, it
would turn a refusal with its cause into an outcome that nobody knows."""
_MARGIN: Final = 0.5
_MARGIN_SECONDS_MAX: Final = 0.25
"""An engine is given so much less than a copy has, or its last word would come too late: one that
waits for a shard until its time is up would be heard only where nothing ever stalls."""
_OK: Final = 400
_NODE_LIMITS: Final = frozenset({"queue_delay", "outbox_depth"})
"""Limits that an engine sets for itself alone: another one may have room."""


class Reply(msgspec.Struct, frozen=True):
    """A good answer."""

    status: int
    body: bytes
    content_type: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `request_id` is given for writes, whose copies must be known as such."""

    method: str
    path: str
    query: dict[str, str] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    request_id: str | None = None


def addresses_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return base URLs; an item may hold several, with commas, and leave http:// out.

    Raises:
        InvalidArgumentError: One is not the address of an HTTP server.
    """
    parts = [part.strip() for item in given for part in item.split(",") if part.strip()]
    return tuple(dict.fromkeys(_base_url(part) for part in parts or [DEFAULT_ADDRESS]))


def _base_url(part: str) -> str:
    url = part if "://" in part else f"http://{part}"
    try:
        split = urlsplit(url)
        usable = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidArgumentError(
            f"{part!r} is not an address; give host:port or http://host:port"
        )
    return url.rstrip("/")


class _Progress:
    """What is known of a call so far."""

    __slots__ = ("followed", "full", "last", "named", "told", "tries", "unresolved")

    def __init__(self) -> None:
        self.tries = 0
        self.named = ""  # the owner that the next copy goes to, because an engine named it
        self.followed: set[str] = set()  # owners that were asked so
        self.full: dict[str, float] = {}  # engine → the wait that it asked for, this round
        self.unresolved: BaseException | None = None
        self.last: BaseException | None = None
        self.told: OdinError | None = None  # the newest answer of an engine


class Transport:
    """One session to all engines of a cluster.

    Args:
        addresses: Base URLs.
        api_key: The bearer token, if the cluster asks for one.
    """

    def __init__(self, addresses: Sequence[str], api_key: str | None = None) -> None:
        self.addresses = addresses_of(addresses)
        self._api_key = api_key
        self._session: aiohttp.ClientSession | None = None
        self._next = random.randrange(len(self.addresses))  # noqa: S311 - spreads load, no secret
        self._silent: dict[str, float] = {}  # engine → until when

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(
        self, request: Request, deadline_seconds: float, *, held_seconds: float = 0.0
    ) -> Reply:
        """Return the answer to a call.

        Args:
            request: The call.
            deadline_seconds: How long copies of it are sent.
            held_seconds: How long the engine may hold the call before it answers.

        Raises:
            OutcomeUnknownError: A write was sent, and whether it happened is not known.
            PayloadError: The body is larger than an engine takes; nothing was sent.
            OdinError: It was refused and nothing happened, or no engine could be reached.
        """
        if request.body is not None and len(request.body) > REQUEST_BYTES_MAX:
            raise PayloadError(
                f"the request has {len(request.body)} bytes, more than the {REQUEST_BYTES_MAX}"
                " allowed; store large values elsewhere and pass references",
                reason="BODY_TOO_LARGE",
            )
        progress = _Progress()
        ends_at = time.monotonic() + deadline_seconds
        copy_seconds = deadline_seconds
        if len(self.addresses) > 1:  # a frozen engine must not eat the whole deadline
            copy_seconds = min(_COPY_SECONDS_MAX, max(deadline_seconds / 3, _COPY_SECONDS_MIN))
        last_seconds = min(_LAST_COPY_SECONDS, deadline_seconds / 4)
        left = deadline_seconds
        while left > 0:
            address, seconds = self._whom(progress), copy_seconds
            if address in progress.followed:
                seconds = min(copy_seconds, _NAMED_SECONDS)
            seconds = min(left, held_seconds + seconds)
            reply = await self._try(address, request, progress, seconds)
            if reply is not None:
                return reply
            progress.tries += 1
            left = ends_at - time.monotonic()
            is_certain = self._is_certain(request, progress)
            # One more copy may tell what is not known; of what is, a short one can only lose it.
            room = 0.0 if is_certain else left - last_seconds
            pause = _pause(progress, len(self.addresses), room)
            left -= pause
            if left < last_seconds and is_certain:
                break
            if left > 0:  # else no copy could follow, and nothing is gained by waiting
                await asyncio.sleep(pause)
        raise self._given_up(request, progress, deadline_seconds) from progress.last

    def _whom(self, progress: _Progress) -> str:
        """Return whom the next copy goes to: the owner that was named, else whose turn it is."""
        named, progress.named = progress.named, ""
        if named:
            return named
        now = time.monotonic()
        for step in range(len(self.addresses)):
            turn = (self._next + step) % len(self.addresses)
            address = self.addresses[turn]
            if address not in progress.followed and self._silent.get(address, now) <= now:
                self._next = turn
                break
        return self.addresses[self._next]

    async def _try(
        self, address: str, request: Request, progress: _Progress, seconds: float
    ) -> Reply | None:
        """Send one copy; return the answer, raise a definite refusal, or note what happened."""
        try:
            status, body, headers = await self._send(address, request, seconds)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._unanswered(address, error, progress, seconds)
            return None
        self._silent.pop(address, None)
        if status < _OK:
            return Reply(status, body, headers.get("content-type", ""))
        refusal = error_of_answer(status, body, headers.get("retry-after"))
        progress.told = refusal
        if refusal.retryable:
            if not _changed_nothing(refusal):
                progress.unresolved = refusal
            is_full = isinstance(refusal, ResourceExhaustedError)
            if is_full and refusal.details.get("limit") in _NODE_LIMITS:
                progress.full[address] = refusal.retry_after or 0.0
            is_waited_out = is_full and address not in progress.full
            self._note(progress, refusal, leaving="" if is_waited_out else address)
            self._follow(refusal, progress)
            return None
        if self._is_definite(request, refusal, progress):
            raise refusal
        self._note(progress, refusal, leaving=address)
        return None

    def _unanswered(
        self, address: str, error: BaseException, progress: _Progress, seconds: float
    ) -> None:
        """Note that a copy which had so many seconds got no answer."""
        if not isinstance(error, aiohttp.ClientConnectorError):  # else nothing was sent
            progress.unresolved = error
        if isinstance(error, TimeoutError) and seconds >= _COPY_SECONDS_MIN:
            self._silent[address] = time.monotonic() + _SILENT_SECONDS
        self._note(progress, error, leaving=address)

    def _is_certain(self, request: Request, progress: _Progress) -> bool:
        """Whether nothing of a write can have happened, and an engine has said why not."""
        is_write = request.request_id is not None
        return is_write and progress.unresolved is None and progress.told is not None

    def _is_definite(self, request: Request, refusal: OdinError, progress: _Progress) -> bool:
        """Whether nothing of the call can have happened, or happen later."""
        if request.request_id is None or progress.unresolved is None:
            return True
        return isinstance(refusal, InvalidArgumentError)  # every copy is as wrong as this one

    async def _send(
        self, address: str, request: Request, seconds: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        told = seconds - min(_MARGIN * seconds, _MARGIN_SECONDS_MAX)
        headers = {"X-Odin-Timeout": f"{min(max(told, 0.001), 60.0):.3f}", **request.headers}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._open().request(
            request.method,
            address + request.path,
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            return response.status, await response.read(), response.headers

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=30)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    def _note(self, progress: _Progress, error: BaseException, *, leaving: str) -> None:
        """Remember the error, and go on to the next engine if the one to leave is still asked.

        Of many calls that fail at one engine only the first moves on: if each did, they would be
        back at it after a round.
        """
        progress.last = error
        log.debug("will ask again", extra={"tries": progress.tries, "detail": str(error)[:200]})
        if self.addresses[self._next] == leaving:
            self._next = (self._next + 1) % len(self.addresses)

    def _follow(self, refusal: OdinError, progress: _Progress) -> None:
        """Ask next whom the engine names.

        The leader serves all calls; an owner that the engine cannot hear is asked once, for this
        call alone: the others may have another owner.
        """
        leader = refusal.details.get("leader")
        if isinstance(refusal, NotLeaderError) and leader in self.addresses:
            self._next = self.addresses.index(str(leader))
        owner = str(refusal.details.get("owner", ""))
        if owner in self.addresses and owner not in progress.followed:
            progress.named = owner
            progress.followed.add(owner)

    def _given_up(self, request: Request, progress: _Progress, seconds: float) -> OdinError:
        told = progress.told
        heard = "" if told is None else f"; last answer: {told} ({told.reason})"
        if progress.unresolved is not None and request.request_id is not None:
            details: dict[str, object] = {"request_id": request.request_id}
            if told is not None:
                details["last_reason"] = told.reason
            return OutcomeUnknownError(
                f"no answer within {seconds:g} s: whether it happened is not known; ask again with"
                f" request_id={request.request_id!r}, which can have no second effect{heard}",
                details=details,
            )
        if isinstance(progress.last, OutcomeUnknownError):  # of a read, which has no fate
            return UnavailableError(str(progress.last), retry_after=progress.last.retry_after)
        if isinstance(progress.last, OdinError):
            return progress.last
        where = ", ".join(self.addresses)
        return UnavailableError(
            f"no engine answered within {seconds:g} s at {where}: {_said(progress.last)}{heard}",
            reason="UNREACHABLE",
        )


def _changed_nothing(refusal: OdinError) -> bool:
    """Whether the refused copy surely had no effect, and can have none later."""
    if isinstance(refusal, UnavailableError):
        return refusal.is_definite
    return isinstance(refusal, ResourceExhaustedError)


def _said(error: BaseException | None) -> str:
    return (str(error) or type(error).__name__) if error is not None else "there was no time left"


def _pause(progress: _Progress, engines: int, room_seconds: float) -> float:
    """Return the wait before the next copy: full jitter, and never less than the engine asks.

    Where there is room for one before the last copy must go out, jitter alone does not outlast it.

    An engine that is full speaks for itself alone: the others are asked first, and then the wait is
    the shortest that one of them has asked for.
    """
    ceiling = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(progress.tries, 10))
    if room_seconds > 0:
        ceiling = min(ceiling, room_seconds)
    jitter = random.uniform(0, ceiling)  # noqa: S311 - jitter, no secret
    asked = progress.last.retry_after if isinstance(progress.last, OdinError) else None
    if progress.full:
        if len(progress.full) < engines:
            return jitter
        asked = min(progress.full.values())
        progress.full.clear()
    return jitter if asked is None else asked * random.uniform(1.0, 1.5)  # noqa: S311 - jitter is no secret
