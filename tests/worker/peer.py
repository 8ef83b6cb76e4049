"""An engine's end of the link, spoken by the test: a real server and socket, no engine behind.

It answers nothing by itself but the greeting. A test waits for what the worker says and says what
an engine would.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from odin.core import events as e
from odin.core import wire
from odin.core.commands import ScheduleActivity
from odin.core.payload import encode
from odin.runtime.link_sockets import WORKER_PATH, ServerSocket
from odin.runtime.links import WORKER_TO_ENGINE, Link, Message

M = TypeVar("M")
SHARD = 3
RUN_ID = "01890000-0000-7000-8000-000000000001"
NOW_US = 1_700_000_000_000_000


class Peer:
    """One engine, as far as a worker can tell."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.address = ""
        self.entries: list[wire.ShardEntry] = []
        self.nodes: tuple[wire.NodeEntry, ...] = ()
        self.said: list[Any] = []
        self.links: list[Link] = []
        self.greets = True
        self._news = asyncio.Event()

    def owns(self, *shard_ids: int, range_id: int = 1) -> None:
        """Say from now on that these shards are its own."""
        self.entries += [wire.ShardEntry(one, self.incarnation, range_id) for one in shard_ids]

    async def serve(self, websocket: WebSocket) -> None:
        await websocket.accept()
        link = Link(ServerSocket(websocket), WORKER_TO_ENGINE, name="worker")
        self.links.append(link)
        if self.greets:
            link.send(
                wire.Welcome(1, self.incarnation, "node", 64, tuple(self.entries), self.nodes)
            )
        await link.run(self._hear)
        self.links.remove(link)

    def _hear(self, message: Message) -> None:
        self.said.append(message)
        self._news.set()

    def say(self, message: Message) -> None:
        """Send to the worker, over the newest link."""
        assert self.links[-1].send(message)

    async def give(self, *tasks: wire.TaskEntry) -> bool:
        """Hand tasks out as an engine without a broker does. Returns whether they were taken."""
        receipt = await self.links[-1].ask(lambda seq: wire.Tasks(seq, "default", tasks), 5.0)
        return bool(receipt.taken)

    def cut(self) -> None:
        """End all links."""
        for link in self.links:
            link.close("cut by the test")

    async def hear(
        self, kind: type[M], when: Callable[[M], bool] = lambda _: True, *, seconds: float = 5.0
    ) -> M:
        """Return the next message of this kind, and forget it."""
        async with asyncio.timeout(seconds):
            while True:
                for at, message in enumerate(self.said):
                    if isinstance(message, kind) and when(message):
                        del self.said[at]
                        return message
                self._news.clear()
                await self._news.wait()

    def heard(self, kind: type[M]) -> list[M]:
        """Return what has been said of this kind and not been waited for."""
        return [message for message in self.said if isinstance(message, kind)]


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the test runner."""
        yield


@asynccontextmanager
async def peer(incarnation: str = "engine-a") -> AsyncIterator[Peer]:
    """Serve one peer on a free port of the loopback."""
    one = Peer(incarnation)
    app = Starlette(routes=[WebSocketRoute(WORKER_PATH, one.serve)])
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        lifespan="off",
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        one.address = f"http://127.0.0.1:{port}"
        try:
            yield one
        finally:
            one.cut()
            server.should_exit = True
            for listening in server.servers:
                listening.close()


class History:
    """The events of one run, as an engine would store them."""

    def __init__(self, workflow_type: str, *arguments: object, run_id: str = RUN_ID) -> None:
        self.header = wire.RunHeader(
            SHARD, "default", f"w-{run_id[-4:]}", run_id, workflow_type, "default", run_id
        )
        self.events: list[e.HistoryEvent] = []
        self.token = 0
        self._tokens = itertools.count(100)
        payloads = tuple(encode(one) for one in arguments)
        self.append(
            e.WorkflowExecutionStarted(
                workflow_type=workflow_type,
                task_queue="default",
                input=payloads,
                first_run_id=run_id,
            )
        )
        self.task_token = self.token

    @property
    def last_id(self) -> int:
        return len(self.events)

    def append(self, *events: e.Event) -> None:
        """Append one batch."""
        for event in events:
            self.events.append(e.to_history(event, self.last_id + 1, NOW_US))
        self.token = next(self._tokens)

    def task(self, number: int = 1, kind: str = "w", attempt: int = 1) -> wire.TaskEntry:
        """Return the entry that names a task of this run."""
        return wire.TaskEntry(kind, SHARD, 1, self.header.run_id, number, attempt)

    def granted(self, claim: wire.ClaimWorkflowTask, **changes: object) -> wire.WorkflowTaskGranted:
        """Return the answer to a claim, with the whole history."""
        fields: dict[str, Any] = {
            "seq": claim.seq,
            "header": self.header,
            "number": claim.number,
            "attempt": 1,
            "task_token": self.task_token,
            "time_us": NOW_US,
            "events": tuple(self.events),
            "upper_event_id": self.last_id,
            "token": self.token,
            "from_start": True,
        }
        return wire.WorkflowTaskGranted(**(fields | changes))

    def accept(
        self, report: wire.ReportWorkflowTask, *caused: e.Event, closed: bool = False
    ) -> wire.WorkflowTaskAccepted:
        """Record a report with the events that its commands caused, and return the answer."""
        self.append(
            e.WorkflowTaskCompleted(
                seen=report.seen, time_us=report.time_us, worker="w", task_number=report.number
            ),
            *caused,
        )
        self.task_token = self.token
        return self.answer(report, closed=closed)

    def answer(
        self, report: wire.ReportWorkflowTask, *, closed: bool = False
    ) -> wire.WorkflowTaskAccepted:
        """Return the answer to an accepted report: all events after what it had seen."""
        return wire.WorkflowTaskAccepted(
            report.seq, tuple(self.events[report.seen :]), self.token, closed
        )

    def push(self, number: int, after: int) -> wire.PushWorkflowTask:
        """Return the next task, pushed, with the events after `after`."""
        return wire.PushWorkflowTask(
            self.header,
            number,
            1,
            self.task_token,
            NOW_US + number,
            after,
            tuple(self.events[after:]),
            self.last_id,
            self.token,
        )

    def activity(
        self, claim: wire.ClaimActivityTask, name: str, *arguments: object, **changes: object
    ) -> wire.ActivityTaskGranted:
        """Return the grant of an attempt."""
        fields: dict[str, Any] = {
            "seq": claim.seq,
            "header": self.header,
            "command_id": claim.command_id,
            "activity_id": str(claim.command_id),
            "activity_type": name,
            "task_queue": "default",
            "attempt": claim.attempt,
            "claim_token": claim.claim_token,
            "input": tuple(encode(one) for one in arguments),
            "scheduled_us": NOW_US,
            "start_to_close_ms": 60_000,
            "heartbeat_ms": None,
            "deadline_us": NOW_US + 60_000_000,
            "now_us": NOW_US,
        }
        return wire.ActivityTaskGranted(**(fields | changes))


def scheduled(command: ScheduleActivity) -> e.ActivityTaskScheduled:
    """Return the event that a ScheduleActivity command becomes."""
    names = e.ActivityTaskScheduled.__struct_fields__
    return e.ActivityTaskScheduled(**{name: getattr(command, name) for name in names})
