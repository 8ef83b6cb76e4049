"""One direction of one connection: data in order, held, delayed, paced or cut as the faults say."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from .faults import Fault, Flow
from .patterns import Literal, Match, Postgres

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUED_BYTES_MAX: Final = 256 * 1024
PACE_SECONDS: Final = 0.05


class Owner(Protocol):
    """The connection, as its directions see it."""

    def triggered(self, pipe: Pipe, fault_id: str, fault: Fault) -> None:
        """A pattern has been found; the pipe has forwarded, and kept back, what it should."""
        ...

    def drained(self, pipe: Pipe) -> None:
        """Everything has been forwarded, the end of the stream included."""
        ...

    def note_bytes(self, pipe: Pipe, count: int) -> None:
        """Data has come."""
        ...


class Pipe:
    """Carries one direction.

    Attributes:
        source: Where data is read; it is paused when nothing more is wanted.
        sink: Where data goes; None until that side is connected.
        frozen_by: The fault that has frozen this pipe, "" if none has.
        is_ended: Whether the source has ended its side.
        is_sink_full: Whether the sink wants no more at the moment.
    """

    def __init__(
        self,
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
        flow: Callable[[], Flow],
        statements: Postgres | None,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._flow = flow
        self._statements = statements
        self._literals: dict[str, Literal] = {}
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._ready_at = 0.0
        self._kept_back = b""
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None
        self.frozen_by = ""
        self.is_ended = False
        self.is_sink_full = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits in it."""
        return not self._queue and not self._kept_back

    @property
    def is_stopped(self) -> bool:
        """Whether it lets nothing through at the moment."""
        return bool(self.frozen_by) or self._flow().is_held

    def feed(self, data: bytes) -> None:
        """Take what the source has sent."""
        self._owner.note_bytes(self, len(data))
        flow = self._flow()
        sent = self._statements.feed(data) if self._statements is not None else ()
        if flow.triggers and not self.frozen_by:
            for fault_id, fault in flow.triggers:
                if fault.is_statement:
                    wanted = fault.pattern.encode()
                    found = next((one.match for one in sent if wanted in one.text), None)
                else:
                    finder = self._literals.setdefault(fault_id, Literal(fault.pattern.encode()))
                    found = finder.feed(data)
                if found is not None:
                    self._bite(data, found, fault_id, fault)
                    return
        if flow.is_plain and not self._queue and not self.frozen_by and self.sink is not None:
            self.sink.write(data)
            return
        self._put(data, flow)
        self._pump()

    def end(self) -> None:
        """The source has ended its side; the sink hears of it after all that was sent before."""
        self.is_ended = True
        self._pump()

    def refresh(self) -> None:
        """The faults have changed."""
        self._pump()

    def thaw(self) -> None:
        """Go on after a freeze: what was kept back is forwarded."""
        self.frozen_by = ""
        data, self._kept_back = self._kept_back, b""
        if data:
            self._put(data, self._flow())
        self._pump()

    def close(self) -> None:
        """Forward nothing any more."""
        self._queue.clear()
        self._queued, self._kept_back = 0, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _bite(self, data: bytes, match: Match, fault_id: str, fault: Fault) -> None:
        is_before = fault.mode == "freeze_before"
        at = match.start if is_before else match.end
        self._put(data[:at], self._flow())
        if is_before:
            self.frozen_by = fault_id
        if fault.mode != "cut_after":  # of what is cut the rest is lost
            if is_before:
                self._kept_back += data[at:]
            else:
                self._put(data[at:], self._flow())
        self._flush_now()
        self._owner.triggered(self, fault_id, fault)
        self._pump()

    def _put(self, data: bytes, flow: Flow) -> None:
        if not data:
            return
        if self.frozen_by:
            self._kept_back += data
            return
        wait = flow.delay_seconds
        if flow.jitter_seconds:
            wait += random.uniform(0, flow.jitter_seconds)  # noqa: S311 - a delay, no secret
        # Never before what was sent earlier: TCP keeps the order.
        self._ready_at = max(self._ready_at, self._loop.time() + wait)
        self._queue.append((self._ready_at, data))
        self._queued += len(data)

    def _flush_now(self) -> None:
        """Forward what is queued whatever its delay: a pattern bites behind all of it."""
        while self._queue and self.sink is not None:
            self._write(self._queue.popleft()[1])

    def _pump(self) -> None:
        """Forward what may be forwarded now, and come back for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flow = self._flow()
        is_stopped = self.is_stopped
        while self._queue and self.sink is not None and not is_stopped and not self.is_sink_full:
            ready_at, data = self._queue[0]
            now = self._loop.time()
            if ready_at > now:
                self._timer = self._loop.call_at(ready_at, self._pump)
                break
            self._queue.popleft()
            if flow.bytes_per_second:
                portion = max(1, int(flow.bytes_per_second * PACE_SECONDS))
                if len(data) > portion:
                    self._queue.appendleft((ready_at, data[portion:]))
                self._write(data[:portion])
                next_at = now + min(len(data), portion) / flow.bytes_per_second
                self._hold_until(next_at)
            else:
                self._write(data)
        self._update_reading(is_stopped=is_stopped)
        if self.is_ended and self.is_empty and not is_stopped:
            self._owner.drained(self)

    def _hold_until(self, at: float) -> None:
        if self._queue:
            self._queue[0] = (max(at, self._queue[0][0]), self._queue[0][1])
        self._ready_at = max(self._ready_at, at)

    def _write(self, data: bytes) -> None:
        assert self.sink is not None, "only once connected"  # noqa: S101 - for the type checker
        self._queued = max(0, self._queued - len(data))
        self.sink.write(data)

    def _update_reading(self, *, is_stopped: bool) -> None:
        """Read on only while there is somewhere to put it."""
        if self.source is None or self.is_ended or self.source.is_closing():
            return
        full = self.is_sink_full or self._queued > QUEUED_BYTES_MAX
        pause = is_stopped or full or self.sink is None
        if pause != self._is_paused:
            self._is_paused = pause
            if pause:
                self.source.pause_reading()
            else:
                self.source.resume_reading()
