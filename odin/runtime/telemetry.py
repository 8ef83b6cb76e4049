"""Counters and happenings for whoever watches; bounded, lossy, and never in the way of the work.

`count`, `gauge` and `happening` only touch memory and never raise. A loop writes once a second, in
one exchange of 50 ms at most. Counters are totals since the start of the process, so that a lost
write loses nothing that the next one does not bring.

In Valkey: `odin:telemetry:<service>:<node>`, a hash that is replaced whole and goes after 15 s, so
that what is there is fresh (its age is 15 s less what is left of its time, by Valkey's own clock);
and the stream `odin:happenings`, capped at about 1,000.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odin.runtime.clock import Clock, SystemClock, pause
from odin.runtime.valkey import ValkeyClient, ValkeyDownError

if TYPE_CHECKING:
    import asyncio

KEY_PREFIX = "odin:telemetry:"
HAPPENINGS_KEY = "odin:happenings"
TTL_MS = 15_000
STALE_SECONDS = 3.0
HAPPENINGS_KEPT = 1_000

_FLUSH_SECONDS = 1.0
_QUEUE_MAX = 500
_NAMES_MAX = 500
_READ_SECONDS_MAX = 2.0
_FIELDS_BYTES_MAX = 4_096

log = logging.getLogger(__name__)


class Telemetry:
    """What one process tells of itself."""

    def __init__(
        self, url: str | None, service: str, node: str, *, clock: Clock | None = None
    ) -> None:
        """Remember what to tell; without a `url` everything is dropped."""
        self._clock = clock or SystemClock()
        self._client = ValkeyClient(url, clock=self._clock) if url else None
        self._service = service
        self._node = node
        self._counts: Counter[str] = Counter()
        self._gauges: dict[str, float] = {}
        self._happenings: deque[dict[str, str]] = deque()
        self.dropped_count = 0

    @property
    def has_listener(self) -> bool:
        """Whether there is a Valkey to tell at all: without one nothing need be gathered."""
        return self._client is not None

    @property
    def is_lost(self) -> bool:
        """Whether nobody sees this telemetry at present: no Valkey, or it does not answer."""
        return self._client is None or self._client.breaker.is_open

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to the total `name`."""
        if name in self._counts or len(self._counts) < _NAMES_MAX:
            self._counts[name] += n
        else:
            self.dropped_count += 1

    def gauge(self, name: str, value: float) -> None:
        """Set the present value of `name`."""
        if name in self._gauges or len(self._gauges) < _NAMES_MAX:
            self._gauges[name] = value
        else:
            self.dropped_count += 1

    def happening(self, kind: str, **fields: object) -> None:
        """Tell of something that happened once; the oldest goes when too many wait."""
        if self._client is None:
            self.dropped_count += 1
            return
        if len(self._happenings) >= _QUEUE_MAX:
            self._happenings.popleft()
            self.dropped_count += 1
        text = _encoded(fields)
        at_ms = str(int(self._clock.wall().timestamp() * 1_000))
        self._happenings.append({"kind": kind, "at_ms": at_ms, "fields": text})

    async def run(self, stop: asyncio.Event) -> None:
        """Write once a second until `stop` is set, then once more; a loop for `serve`."""
        if self._client is None:
            await stop.wait()
            return
        try:
            while not await pause(self._clock, stop, _FLUSH_SECONDS):
                await self.flush()
            await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections; what was not written is lost."""
        if self._client is not None:
            await self._client.close()

    async def flush(self) -> bool:
        """Write what there is; return whether it was written. What was not is tried again."""
        if self._client is None:
            return False
        sending = list(self._happenings)
        origin = {"service": self._service, "node": self._node}
        key = f"{KEY_PREFIX}{self._service}:{self._node}"
        try:
            async with self._client.call() as valkey:
                pipeline = valkey.pipeline(transaction=True)
                pipeline.delete(key)
                pipeline.hset(key, mapping=origin | self._as_fields())
                pipeline.pexpire(key, TTL_MS)
                for one in sending:
                    pipeline.xadd(HAPPENINGS_KEY, origin | one, maxlen=HAPPENINGS_KEPT)
                await pipeline.execute()
        except ValkeyDownError:
            return False
        self._forget(sending)
        return True

    def _as_fields(self) -> dict[str, str]:
        fields = {f"count:{name}": str(total) for name, total in self._counts.items()}
        fields |= {f"gauge:{name}": repr(float(value)) for name, value in self._gauges.items()}
        fields["at_ms"] = str(int(self._clock.wall().timestamp() * 1_000))
        fields["dropped"] = str(self.dropped_count)
        return fields

    def _forget(self, sent: list[dict[str, str]]) -> None:
        """Take what was written off the queue; its head may have been dropped meanwhile."""
        written = {id(one) for one in sent}
        while self._happenings and id(self._happenings[0]) in written:
            self._happenings.popleft()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one process told of itself last."""

    service: str
    node: str
    age_seconds: float
    dropped_count: int
    counts: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)

    @property
    def is_stale(self) -> bool:
        """Whether so much time has passed that the process may be gone."""
        return self.age_seconds > STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened once."""

    id: str
    service: str
    node: str
    kind: str
    at_ms: int
    fields: dict[str, Any]


async def read_telemetry(url: str) -> list[Snapshot]:
    """Return what every process told in the last 15 s, by service and node.

    Raises:
        ValkeyDownError: Valkey did not answer.
    """
    client = ValkeyClient(url, call_seconds_max=_READ_SECONDS_MAX)
    try:
        async with client.call() as valkey:
            keys = [key async for key in valkey.scan_iter(match=f"{KEY_PREFIX}*", count=500)]
            pipeline = valkey.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(key)
                pipeline.pttl(key)
            answers = await pipeline.execute()
    finally:
        await client.close()
    pairs = zip(answers[::2], answers[1::2], strict=True)
    # A key may have gone between the two looks.
    snapshots = [_snapshot(fields, left_ms) for fields, left_ms in pairs if fields and left_ms > 0]
    return sorted(snapshots, key=lambda one: (one.service, one.node))


async def read_happenings(url: str, count: int = 100) -> list[Happening]:
    """Return the newest `count` happenings, newest first.

    Raises:
        ValkeyDownError: Valkey did not answer.
    """
    client = ValkeyClient(url, call_seconds_max=_READ_SECONDS_MAX)
    try:
        async with client.call() as valkey:
            entries = await valkey.xrevrange(HAPPENINGS_KEY, count=count)
    finally:
        await client.close()
    return [
        Happening(
            id=entry_id,
            service=fields["service"],
            node=fields["node"],
            kind=fields["kind"],
            at_ms=int(fields["at_ms"]),
            fields=json.loads(fields["fields"]),
        )
        for entry_id, fields in entries
    ]


def _snapshot(fields: dict[str, str], left_ms: int) -> Snapshot:
    return Snapshot(
        service=fields["service"],
        node=fields["node"],
        age_seconds=max(0, TTL_MS - left_ms) / 1_000,
        dropped_count=int(fields["dropped"]),
        counts={k[6:]: int(v) for k, v in fields.items() if k.startswith("count:")},
        gauges={k[6:]: float(v) for k, v in fields.items() if k.startswith("gauge:")},
    )


def _encoded(fields: dict[str, object]) -> str:
    """Return the fields as JSON; whatever cannot be encoded or is too long is told as such."""
    try:
        text = json.dumps(fields, default=str)
    except (TypeError, ValueError, RecursionError):
        return '{"unencodable": true}'
    return text if len(text) <= _FIELDS_BYTES_MAX else '{"too_long": true}'
