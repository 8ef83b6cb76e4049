"""One connection through the proxy: two sockets, two pipes, and what becomes of one at the other.

While a direction is held, the end of its source is not noticed either: reading is paused, so that
neither FIN nor RST is seen. That is how a network that swallows packets looks.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol

from .patterns import Postgres
from .pipe import Pipe

if TYPE_CHECKING:
    from .faults import Fault, Flow

CONNECT_SECONDS: Final = 10.0
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
# What the writer may have pending before the reader is paused.
_HIGH_WATER: Final = 256 * 1024


class Link(Protocol):
    """The link that the connection belongs to."""

    up: Flow
    down: Flow
    is_postgres: bool
    bytes_up: int
    bytes_down: int

    def admit(self, conversation: Conversation) -> None:
        """A connection has been accepted."""
        ...

    def forget(self, conversation: Conversation) -> None:
        """Both of its ends have gone."""
        ...

    def triggered(self, fault_id: str) -> None:
        """A fault's pattern has been found."""
        ...


class Conversation:
    """One accepted connection and the one to the dependency that belongs to it.

    Attributes:
        up: What the part sends.
        down: What the dependency sends.
        client: The part's socket.
        server: The dependency's.
        is_dialled: Whether the dependency is being dialled, or has been.
    """

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        statements = Postgres() if link.is_postgres else None
        self.up = Pipe(self, loop, lambda: link.up, statements)
        self.down = Pipe(self, loop, lambda: link.down, None)
        self.client = Side(self, self.up, self.down)
        self.server = Side(self, self.down, self.up)
        self._half_open_by = ""
        self.is_dialled = False

    # --- what the link asks -----------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether the dependency has not been dialled yet."""
        return self.server.transport is None and not self.client.is_gone

    def refresh(self) -> None:
        """The link's faults have changed."""
        self.up.refresh()
        self.down.refresh()

    def reset(self) -> None:
        """Reset both ends."""
        self.client.reset()
        self.server.reset()

    def half_open(self, fault_id: str, *, is_part_deaf: bool) -> None:
        """Reset one end, and let the other never hear of it until the fault is healed."""
        self._half_open_by = fault_id
        (self.server if is_part_deaf else self.client).reset()
        for pipe in (self.up, self.down):
            pipe.frozen_by = fault_id
            pipe.refresh()

    def healed(self, fault_id: str) -> None:
        """A fault is over."""
        if self._half_open_by == fault_id:
            self.reset()
        for pipe in (self.up, self.down):
            if pipe.frozen_by == fault_id:
                pipe.thaw()

    # --- what the sides tell ----------------------------------------------------------------------

    def opened(self, side: Side) -> None:
        """A side is connected."""
        if side is self.client:
            self._link.admit(self)
        self.refresh()

    def lost(self, side: Side, error: Exception | None) -> None:
        """A side's socket has gone."""
        other = self.server if side is self.client else self.client
        if not self._half_open_by:
            if isinstance(error, OSError):
                other.reset()
            else:
                other.close()
        if self.client.is_gone and (self.server.is_gone or self.server.transport is None):
            self.up.close()
            self.down.close()
            self._link.forget(self)

    # --- what the pipes tell ----------------------------------------------------------------------

    def triggered(self, pipe: Pipe, fault_id: str, fault: Fault) -> None:
        """A pattern has been found in a pipe."""
        if fault.mode == "cut_after":
            # The dependency reads all of it and then an end; a reset would make it drop the rest.
            self.server.close()
            self.client.reset()
        elif fault.mode == "freeze_after":
            answer = self.down if pipe is self.up else self.up
            answer.frozen_by = fault_id
            answer.refresh()
        self._link.triggered(fault_id)

    def drained(self, pipe: Pipe) -> None:
        """All that came on a pipe has been forwarded, and its source has ended its side."""
        sink = self.server if pipe is self.up else self.client
        sink.end()
        if self.up.is_ended and self.down.is_ended and self.up.is_empty and self.down.is_empty:
            self.client.close()
            self.server.close()

    def note_bytes(self, pipe: Pipe, count: int) -> None:
        """Count what has come."""
        if pipe is self.up:
            self._link.bytes_up += count
        else:
            self._link.bytes_down += count


class Side(asyncio.Protocol):
    """One socket: data goes into one pipe, and comes out of the other."""

    def __init__(self, conversation: Conversation, into: Pipe, out: Pipe) -> None:
        self._conversation = conversation
        self._into = into
        self._out = out
        self.transport: asyncio.Transport | None = None
        self.is_gone = False
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")  # noqa: S101 - uvloop's is its own
        self.transport = self._into.source = self._out.sink = transport  # type: ignore[assignment] # see above
        self.transport.set_write_buffer_limits(_HIGH_WATER)  # type: ignore[union-attr] # just set
        self._conversation.opened(self)

    def data_received(self, data: bytes) -> None:
        """Pass data on."""
        self._into.feed(data)

    def eof_received(self) -> bool:
        """Pass the end on; what comes the other way goes on."""
        self._into.end()
        return True

    def pause_writing(self) -> None:
        """Stop reading at the other side."""
        self._out.is_sink_full = True
        self._out.refresh()

    def resume_writing(self) -> None:
        """Go on."""
        self._out.is_sink_full = False
        self._out.refresh()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket has gone."""
        self.is_gone = True
        self._conversation.lost(self, exc)

    def end(self) -> None:
        """Say that nothing more comes."""
        if self.transport is not None and not self._has_ended and not self.transport.is_closing():
            self._has_ended = True
            self.transport.write_eof()

    def close(self) -> None:
        """Close it once everything is written."""
        if self.transport is not None and not self.is_gone:
            self.transport.close()

    def reset(self) -> None:
        """Close it at once, with an RST."""
        if self.transport is None or self.is_gone:
            return
        raw = self.transport.get_extra_info("socket")
        if raw is not None and not self.transport.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self.transport.abort()
