"""Links: one WebSocket that carries batched messages both ways.

    send, request ──▶ buffer ──▶ writer: all that is queued, one frame ──▶ socket
    on_message, on_answer ◀── reader: one frame, all its messages      ◀── socket

`send` is synchronous: the message is encoded into the frame that gathers, and the writer sends that
frame once the running callbacks are done. So whatever one turn of the event loop has to say travels
together, without a timer and without a wait.

A link is good until it ends, and it ends once: closed by either side, silent for too long, too slow
to take what is queued, or damaged. What was under way is then lost, as on a wire; every request
that has no answer is told so. Nothing here repeats anything: that is for whoever knows what may be
said twice.

Liveness is counted in ticks of the event loop and not by a clock: a process that was stopped for a
while first reads what has arrived, and only then judges the silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from odin.core import wire
from odin.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    OdinError,
    UnavailableError,
)

from .link_dialects import BETWEEN_ENGINES, ENGINE_TO_WORKER, WORKER_TO_ENGINE, Dialect
from .link_silence import Silence

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_BYTES: Final = 256 * 1024
"""A frame that has grown to this many bytes takes no further message."""
QUEUE_BYTES_MAX: Final = 32 * 1024 * 1024
"""A link with more than this waiting to be sent is closed: the other end is too slow."""
PING_SECONDS: Final = 2.0
DEAD_SECONDS: Final = 6.0
SILENT: Final = "silent"
"""Why a link was closed on which nothing was heard: cut, or its other end is frozen."""
_TICK_SECONDS: Final = 1.0
_HEADER_ROOM: Final = 5
_SHORT_ARRAY_MAX: Final = 15
_CLOSE_SECONDS: Final = 0.5

log = logging.getLogger(__name__)

Message: TypeAlias = Any  # one member of the unions of odin.core.wire
Answered: TypeAlias = "Callable[[Message | LinkClosedError], None]"

_ENCODER: Final = msgspec.msgpack.Encoder()


class LinkClosedError(UnavailableError):
    """The link has ended; what was asked on it may or may not have arrived."""

    reason = "LINK_CLOSED"


class Socket(Protocol):
    """A WebSocket, whoever implements it."""

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary message; raises OSError or RuntimeError when the connection is gone."""
        ...

    async def receive_bytes(self) -> bytes | None:
        """Return the next binary message, or None once the connection is closed."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Close the connection; harmless when it is closed already."""
        ...


class Link:
    """One connection. Belongs to the event loop that runs it; not for other threads.

    Args:
        socket: The open connection.
        dialect: What arrives.
        name: Whom it leads to, for logs.
        pings: Whether this side sends the heartbeats; one side of a link does (the client).
        impatient: Whether an answer that is waited for is a reason to ping, and to give the link up
            soon. For links whose other end answers pings however busy it is.
    """

    def __init__(
        self,
        socket: Socket,
        dialect: Dialect,
        *,
        name: str,
        pings: bool = False,
        impatient: bool = False,
    ) -> None:
        self.name = name
        self.close_reason = ""
        self._socket = socket
        self._dialect = dialect
        self._pings = pings
        self._seq = 0
        self._pending: dict[int, Answered] = {}
        self._frame = bytearray(_HEADER_ROOM)
        self._count = 0
        self._full: deque[bytes] = deque()
        self._full_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._frames_read = 0
        self._silence = Silence(
            lambda: self._frames_read,
            lambda: self.pending,
            lambda: self.send(wire.Ping(0)),
            lambda: self.close(SILENT),
        )
        self._impatient = impatient

    @property
    def closed(self) -> bool:
        """Whether the link has ended: nothing that is sent now will arrive."""
        return self._closing.is_set()

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._full_bytes + len(self._frame) - _HEADER_ROOM

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    def send(self, message: Message) -> bool:
        """Queue one message.

        Returns:
            False if the link has ended: the message is lost, as if on the way.

        Raises:
            InvalidArgumentError: The message alone is larger than a frame may be.
        """
        if self._closing.is_set():
            return False
        frame = self._frame
        before = len(frame)
        _ENCODER.encode_into(message, frame, -1)
        if len(frame) - before > wire.FRAME_BYTES_MAX - _HEADER_ROOM:
            size = len(frame) - before
            del frame[before:]
            raise InvalidArgumentError(
                f"a {type(message).__name__} of {size} bytes exceeds the"
                f" {wire.FRAME_BYTES_MAX} bytes of a frame",
                reason="MESSAGE_TOO_LARGE",
            )
        if len(frame) > FRAME_BYTES:
            self._seal(before)
        else:
            self._count += 1
        if self._wake is not None:
            self._wake_writer()
        return True

    def request(self, make: Callable[[int], Message], on_answer: Answered) -> int:
        """Send `make(seq)` and have `on_answer` called once: with the answer, or LinkClosedError.

        The cheap form of `ask`: no task, no future, no timer.

        Returns:
            The seq, for `forget`.
        """
        self._seq += 1
        seq = self._seq
        if self._closing.is_set():
            asyncio.get_running_loop().call_soon(on_answer, self._closed_error())
            return seq
        self._pending[seq] = on_answer
        try:
            self.send(make(seq))
        except BaseException:
            del self._pending[seq]
            raise
        if self._impatient:
            self._silence.watch()
        return seq

    def forget(self, seq: int) -> None:
        """Let the answer to `seq` be dropped when it comes."""
        self._pending.pop(seq, None)

    async def ask(self, make: Callable[[int], Message], timeout: float) -> Message:  # noqa: ASYNC109 - callers have one deadline per request
        """Send `make(seq)` and return the answer.

        Raises:
            LinkClosedError: The link ended first.
            DeadlineExceededError: No answer within `timeout` seconds.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        seq = self.request(make, partial(_resolve, future))
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise DeadlineExceededError(f"{self.name} gave no answer in {timeout} s") from None
        finally:
            self.forget(seq)

    def close(self, reason: str) -> None:
        """End the link; `run` returns soon after. What is queued may be lost."""
        if not self._closing.is_set():
            self.close_reason = reason
            self._closing.set()
            if self._wake is not None:
                self._wake_writer()

    async def run(self, on_message: Callable[[Message], None]) -> str:
        """Carry messages until the link ends, and return why it ended.

        Args:
            on_message: Called in the order of arrival with each message that answers no request.
        """
        ticks = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick, 0, 0.0, 0.0)
        self._ticks = ticks
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(on_message), name=f"read {self.name}")
                writer = group.create_task(self._write(), name=f"write {self.name}")
                await self._closing.wait()
                await asyncio.wait({writer}, timeout=_CLOSE_SECONDS)
                reader.cancel()
                writer.cancel()
        finally:
            self.close("cancelled")
            self._ticks.cancel()
            self._silence.end()
            self._fail_pending()
            await self._shut()
        return self.close_reason

    async def _shut(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._socket.close(1000, self.close_reason[:100])
        except (OSError, RuntimeError, TimeoutError):
            log.debug("link closed without a farewell", extra={"link": self.name})

    def _seal(self, before: int) -> None:
        """Move the frame that gathers to the queue; the newest message begins the next one."""
        if before > _HEADER_ROOM:
            newest = self._frame[before:]
            del self._frame[before:]
            self._queue_frame()
            self._frame += newest
        self._count += 1
        if len(self._frame) > FRAME_BYTES:
            self._queue_frame()
        if self._full_bytes > QUEUE_BYTES_MAX:
            log.warning(
                "link closed, the other end is too slow",
                extra={"link": self.name, "queued_bytes": self._full_bytes},
            )
            self.close("too slow")

    def _queue_frame(self) -> None:
        data = self._take_frame()
        self._full.append(data)
        self._full_bytes += len(data)

    def _take_frame(self) -> bytes:
        """Return what has gathered as one msgpack array, and begin anew."""
        count, frame = self._count, self._frame
        if count <= _SHORT_ARRAY_MAX:
            frame[4] = 0x90 | count
            data = bytes(memoryview(frame)[4:])
        else:
            frame[0:5] = b"\xdd" + count.to_bytes(4, "big")
            data = bytes(frame)
        self._frame = bytearray(_HEADER_ROOM)
        self._count = 0
        return data

    def _wake_writer(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        socket = self._socket
        try:
            while True:
                while self._full:
                    data = self._full.popleft()
                    self._full_bytes -= len(data)
                    await socket.send_bytes(data)
                if self._count:
                    await socket.send_bytes(self._take_frame())
                elif self._closing.is_set():
                    return
                else:
                    self._wake = loop.create_future()
                    await self._wake
        except (OSError, RuntimeError) as error:
            self.close(f"cannot send: {type(error).__name__}")

    async def _read(self, on_message: Callable[[Message], None]) -> None:
        try:
            while not self._closing.is_set():
                frame = await self._socket.receive_bytes()
                if frame is None:
                    self.close("closed by the other end")
                    return
                self._frames_read += 1
                self._handle(frame, on_message)
        except (OSError, RuntimeError) as error:
            self.close(f"cannot receive: {type(error).__name__}")

    def _handle(self, frame: bytes, on_message: Callable[[Message], None]) -> None:
        try:
            messages = self._dialect.decode(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError, OdinError) as error:
            # Text that is not UTF-8 is a ValueError, a policy that contradicts itself an OdinError.
            log.error(  # noqa: TRY400 - the stack tells nothing that the error does not
                "link closed, a frame is damaged",
                extra={"link": self.name, "frame_bytes": len(frame), "detail": str(error)[:200]},
            )
            self.close("damaged frame")
            return
        answers = self._dialect.answers
        try:
            for message in messages:
                kind = type(message)
                if kind in answers:
                    on_answer = self._pending.pop(message.seq, None)
                    if on_answer is not None:
                        on_answer(message)
                elif kind is wire.Ping:
                    self.send(wire.Pong(message.seq))
                elif kind is not wire.Pong:
                    on_message(message)
        except Exception:  # whatever the handler trips over must end this link, not the process
            log.exception("link closed, a message could not be handled", extra={"link": self.name})
            self.close("handler failed")

    def _tick(self, seen: int, silent: float, since_ping: float) -> None:
        """Once a second: send the heartbeat, and end the link after too long a silence."""
        if self._closing.is_set():
            return
        silent = 0.0 if self._frames_read != seen else silent + _TICK_SECONDS
        since_ping += _TICK_SECONDS
        if silent >= DEAD_SECONDS:
            log.warning("link closed, nothing heard", extra={"link": self.name, "silent_s": silent})
            self.close(SILENT)
            return
        if self._pings and since_ping >= PING_SECONDS:
            since_ping = 0.0
            self.send(wire.Ping(0))
        self._ticks = asyncio.get_running_loop().call_later(
            _TICK_SECONDS, self._tick, self._frames_read, silent, since_ping
        )

    def _closed_error(self) -> LinkClosedError:
        return LinkClosedError(f"the link to {self.name} has ended: {self.close_reason}")

    def _fail_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            try:
                on_answer(self._closed_error())
            except Exception:  # one waiter's fault must not keep the others waiting
                log.exception("link end could not be handled", extra={"link": self.name})


def _resolve(future: asyncio.Future[Message], answer: Message | LinkClosedError) -> None:
    if future.done():
        return
    if isinstance(answer, LinkClosedError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


# What others import from here besides the names of this module.
__all__ = ["BETWEEN_ENGINES", "ENGINE_TO_WORKER", "WORKER_TO_ENGINE", "Dialect"]
