"""Faults in the work itself: too much of it at once, and some that nobody can do."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import aio_pika
import aiohttp

from odin.client import Client
from odin.core.topology import queue_name
from odin.errors import OdinError, ResourceExhaustedError, UnavailableError

from .base import Bite
from .undo import Undo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

# The demo's load is five a second, with one step more each.
BURST_PER_SECOND: Final = 30.0
UNDER_WAY_MAX: Final = 300
BURST_LOOK_SECONDS: Final = 4.0
ORIGIN: Final = "chaos-burst"
QUEUE: Final = "default"
CONNECT_SECONDS: Final = 5.0
HTTP_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_BAD_REQUEST: Final = 400
_SERVER_ERROR: Final = 500
# A body that no writer of ours would send: not JSON, of another version, too much of it.
_MESSAGES: Final = (b"\xff\xfe not a message", b'{"v":99,"kind":"w","tasks":[]}', b"[" * 2_000)
# What must be turned away at the door: twice the same key, not a number, cut off.
_BODIES: Final = (
    b'{"workflow_type":"echo","workflow_type":"echo"}',
    b'{"workflow_type":"echo","args":[NaN]}',
    b'{"workflow_type":',
)


class Burst:
    """Far more starts than usual, each asked again when it is refused."""

    inject_seconds = 5.0
    verify_seconds = BURST_LOOK_SECONDS + 2

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._counts: Counter[str] = Counter()
        self._over = asyncio.Event()
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return f"{BURST_PER_SECOND:g} starts a second"

    async def prepare(self) -> Sequence[Undo]:
        """The starts are short runs: they end by themselves."""
        return []

    async def inject(self) -> None:
        """Begin to start."""
        self._began = self._stage.clock.boottime()
        self._starting = self._stage.begin(self._start_all(), "burst")

    async def _start_all(self) -> None:
        stage = self._stage
        async with (
            Client(stage.state.engines, api_key=stage.api_key, identity="chaos") as client,
            asyncio.TaskGroup() as group,
        ):
            number = 0
            while not self._over.is_set():
                due = self._began + number / BURST_PER_SECOND
                await stage.clock.sleep(max(0.0, due - stage.clock.boottime()))
                if self._counts["begun"] - self._counts["ended"] < UNDER_WAY_MAX:
                    self._counts["begun"] += 1
                    group.create_task(self._one(client, number), name=f"burst {number}")
                number += 1

    async def _one(self, client: Client, number: int) -> None:
        name = f"chaos-{self._stage.experiment_id}-burst-{number}"
        try:
            while not self._over.is_set():
                try:
                    await client.start_workflow(
                        "bench_steps", args=[1, "x"], id=name, request_id=f"r-{name}", origin=ORIGIN
                    )
                except ResourceExhaustedError:
                    self._counts["refused"] += 1
                    await self._stage.clock.sleep(0.5)
                except OdinError:
                    self._counts["unanswered"] += 1
                    await self._stage.clock.sleep(0.5)
                else:
                    self._counts["accepted"] += 1
                    return
        finally:
            self._counts["ended"] += 1

    async def verify(self) -> Bite:
        """Count what was begun: most of what was meant, or refused for being too much."""
        await self._stage.clock.sleep(BURST_LOOK_SECONDS)
        took = self._stage.clock.boottime() - self._began
        rate = self._counts["begun"] / took
        evidence = {"seconds": round(took, 1), "begun per s": round(rate, 1), **self._counts}
        is_seen = rate >= BURST_PER_SECOND / 2 or self._counts["refused"] > 0
        return Bite(is_seen, evidence)

    async def heal(self) -> None:
        """Stop starting, and wait until nothing is under way."""
        self._over.set()
        if self._starting is not None:
            await asyncio.wait({self._starting})


class Poison:
    """Requests, messages and runs that nobody can make sense of."""

    inject_seconds = 30.0
    verify_seconds = 12.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._refused: list[int] = []
        self._published = 0
        self._ids = [f"chaos-{stage.experiment_id}-poison-{number}" for number in range(2)]

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return "the door, the queues and the workers"

    async def prepare(self) -> Sequence[Undo]:
        """The runs would be tried for ever: they are to be ended."""
        return [Undo(kind="terminate", workflow_ids=self._ids)]

    async def inject(self) -> None:
        """Send all of it."""
        await self._to_the_door()
        if url := self._stage.levers.secrets().amqp_url:
            await self._to_the_queue(url)
        await self._to_the_workers()

    async def _to_the_door(self) -> None:
        stage = self._stage
        headers = {"Content-Type": "application/json", "Idempotency-Key": self._ids[0]}
        if stage.api_key:
            headers["Authorization"] = f"Bearer {stage.api_key}"
        url = f"{stage.state.engines[0]}/v1/executions"
        try:
            async with aiohttp.ClientSession(timeout=HTTP_TIMEOUT, headers=headers) as session:
                for body in _BODIES:
                    async with session.post(url, data=body) as answer:
                        self._refused.append(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"the door does not answer: {error}") from error

    async def _to_the_queue(self, url: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await aio_pika.connect(url)
                async with connection:
                    channel = await connection.channel(publisher_confirms=True)
                    for body in _MESSAGES:
                        for kind in ("w", "a"):
                            await channel.default_exchange.publish(
                                aio_pika.Message(body), routing_key=queue_name(kind, QUEUE)
                            )
                            self._published += 1
        except (OSError, TimeoutError, aio_pika.exceptions.AMQPError) as error:
            raise UnavailableError(f"the broker does not take it: {error}") from error

    async def _to_the_workers(self) -> None:
        stage = self._stage
        starts: list[tuple[str, list[Any]]] = [
            ("chaos_nobody_hosts_this", []),
            ("bench_steps", ["not a number", {"x": None}]),
        ]
        async with Client(stage.state.engines, api_key=stage.api_key, identity="chaos") as client:
            for workflow_id, (workflow, arguments) in zip(self._ids, starts, strict=True):
                await client.start_workflow(
                    workflow,
                    args=arguments,
                    id=workflow_id,
                    run_timeout=timedelta(minutes=5),
                    origin=ORIGIN,
                )

    async def verify(self) -> Bite:
        """The door said no to each, and each bad run has failed visibly."""
        stage = self._stage
        ends = stage.clock.boottime() + self.verify_seconds
        failed: dict[str, str] = {}
        async with Client(stage.state.engines, api_key=stage.api_key, identity="chaos") as client:
            while len(failed) < len(self._ids) and stage.clock.boottime() < ends:
                for workflow_id in self._ids:
                    if said := await _failure(client, workflow_id):
                        failed[workflow_id] = said
                await stage.clock.sleep(0.25)
        are_refused = all(_BAD_REQUEST <= one < _SERVER_ERROR for one in self._refused)
        is_seen = len(failed) == len(self._ids) and bool(self._refused) and are_refused
        evidence = {"door": self._refused, "messages": self._published, "runs": failed}
        return Bite(is_seen, evidence)

    async def heal(self) -> None:
        """The steps on record end the runs."""


async def _failure(client: Client, workflow_id: str) -> str:
    """Return how a run fails, its task or itself; empty while it does not."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except OdinError:
        return ""
    if str(found.status) != "running":
        return f"the run {found.status}"
    task = found.workflow_task
    if task.last_failure is None:
        return ""
    return f"its task, {task.failures} times: {task.last_failure.message[:100]}"
