"""HTTP connections with bounds that uvicorn lacks: how many, and how slow a request's head may be.

    open ──▶ head arrives within HEAD_SECONDS and HEAD_BYTES_MAX ──▶ body (see `limits`) ──▶ answer
      │            └── 408 or 431, closed                                      └── kept alive
      └── more than CONNECTIONS_MAX: 503, closed

A sender of one header byte a second would otherwise hold a connection for ever, and a thousand of
them an engine.
"""

from __future__ import annotations

import asyncio
import json
import resource
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from odin.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    OdinError,
    UnavailableError,
)
from odin.runtime.http.problem import MEDIA_TYPE, problem_of

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

CONNECTIONS_MAX: Final = 2_000
HEAD_SECONDS: Final = 10.0
HEAD_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost.

    Attributes:
        connections_max: How many may be open at once, WebSockets included.
        head_seconds: How long request line and headers may take to arrive.
        head_bytes_max: How many bytes they may have.
    """

    connections_max: int = CONNECTIONS_MAX
    head_seconds: float = HEAD_SECONDS
    head_bytes_max: int = HEAD_BYTES_MAX

    def within_files(self) -> ConnectionLimits:
        """Return the limits with no more connections than half of the process's open files."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = self.connections_max
        if soft != resource.RLIM_INFINITY:
            most = min(most, max(1, soft // 2))
        return ConnectionLimits(most, self.head_seconds, self.head_bytes_max)


class HeadAndBody:
    """The transport as an answer sees it: what it writes in one turn of the loop goes out at once.

    uvicorn writes head and body apart, and each write is a call of the system. So the first write
    of a turn is kept for the second one, or for the turn's end.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Take the connection's transport."""
        self._transport = transport
        self._loop = loop
        self._first = b""
        self._turn_ends: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write `data` after what is kept, or keep it."""
        if self._turn_ends is None:
            self._first = data
            self._turn_ends = self._loop.call_soon(self._flush)
            return
        self._turn_ends.cancel()
        self._turn_ends = None
        self._transport.writelines((self._first, data))
        self._first = b""

    def close(self) -> None:
        """Write what is kept, then close."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._turn_ends is None:
            return
        self._turn_ends.cancel()
        self._turn_ends = None
        first, self._first = self._first, b""
        if not self._transport.is_closing():
            self._transport.write(first)


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP connection; uvicorn makes it, `limits` bound it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False
        self._answers: HeadAndBody | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin, or refuse one connection too many."""
        super().connection_made(transport)
        self._answers = HeadAndBody(transport, self.loop)
        if len(self.connections) > self._limits.connections_max:
            self._refuse(
                UnavailableError(
                    f"{self._limits.connections_max} connections are open here, no more are taken",
                    reason="TOO_MANY_CONNECTIONS",
                    retry_after=1.0,
                ),
                HTTPStatus.SERVICE_UNAVAILABLE,
            )
            return
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and refuse a head that grows too large."""
        if self.transport.is_closing():
            return
        before = self._head_bytes if self._in_head else 0
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_bytes = before + len(data)
        if self._head_bytes > self._limits.head_bytes_max:
            self._refuse(
                InvalidArgumentError(
                    f"the request's head has more than {self._limits.head_bytes_max} bytes",
                    reason="HEAD_TOO_LARGE",
                ),
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )

    def on_message_begin(self) -> None:
        """A request begins, perhaps the next one of a connection that was kept."""
        super().on_message_begin()
        if not self._in_head:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """The head is here."""
        self._end_head()
        super().on_headers_complete()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.transport is self.transport:
            cycle.transport = self._answers  # type: ignore[assignment]  # all that an answer calls

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(InvalidArgumentError(msg, reason="BAD_HTTP"), HTTPStatus.BAD_REQUEST)

    @property
    def _is_answering(self) -> bool:
        """Whether an answer is under way: uvicorn has no cycle before the first request."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _begin_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_answering:
            # The next request has begun to come in behind one that is being answered, and uvicorn
            # reads no further meanwhile: that is no fault of the sender.
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)
            return
        self._refuse(
            DeadlineExceededError(
                f"the request's head did not arrive within {self._limits.head_seconds:g} s",
                reason="REQUEST_TOO_SLOW",
            ),
            HTTPStatus.REQUEST_TIMEOUT,
        )

    def _refuse(self, error: OdinError, status: HTTPStatus) -> None:
        """Answer with a problem, unless another answer is under way, and close."""
        self._end_head()
        cycle: RequestResponseCycle | None = self.cycle
        may_write = cycle is None or cycle.response_complete
        if cycle is not None and not cycle.response_started and not self.pipeline:
            cycle.disconnected = True  # whoever waits for the rest of the body is told, and silent
            cycle.message_event.set()
            may_write = True
        if may_write:
            body = json.dumps(problem_of(error, "", status)).encode()
            head = [
                STATUS_LINE[status],
                f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n".encode(),
                b"connection: close\r\n\r\n",
            ]
            self.transport.write(b"".join((*head, body)))
        self.transport.close()
