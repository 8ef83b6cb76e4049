"""`python -m bench.load`: the load generator, a process of its own; told by lines of JSON.

    stdin   the order (`Order`), then "go" after each "ready"
    stdout  "ready" once the warm-up is done, then the figures (`LoadFigures`)

Closed loop: as many tasks as may be in flight, each starts a workflow, waits for its result over
the API's wait route, compares it, and starts the next. Starts are spread over several origins,
since admission limits what one origin may start.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from odin.client import Client, WorkflowFailureError, WorkflowHandle
from odin.errors import OdinError
from odin.runtime.service import run, serve

from .results import LoadFigures

ORIGINS: Final = 16
PROBLEMS_MAX: Final = 5
DRAIN_TIMEOUT: Final = timedelta(seconds=1)
STEP_DONE: Final = "activity_task_completed"
READY: Final = b"ready\n"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where.

    Attributes:
        addresses: Engines.
        task_queue: Which workers run it.
        workflow: The workflow type; it takes `steps` and `payload` and returns `steps`.
        steps: Activities per workflow.
        payload: What each activity gets and gives back.
        count: Workflows to measure.
        in_flight: At once.
        warmup_count: Workflows before that.
        prefix: How workflow ids begin; new for every order.
        timeout_seconds: How long one workflow may take before it counts as failed.
        api_key: The cluster's token.
        shows_steps: Whether to tell when each step of the last workflow completed.
    """

    addresses: list[str]
    task_queue: str
    workflow: str
    steps: int
    payload: str
    count: int
    in_flight: int
    warmup_count: int
    prefix: str
    timeout_seconds: float
    api_key: str | None = None
    shows_steps: bool = False


class Tally:
    """What became of the workflows of one phase."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.wrong = 0
        self.failed = 0
        self.problems: list[str] = []
        self.last: WorkflowHandle[int] | None = None

    def note(self, problem: str) -> None:
        """Keep the first few."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


class Generator:
    """Runs one order."""

    def __init__(self, order: Order, client: Client) -> None:
        self._order = order
        self._client = client

    async def phase(self, name: str, count: int) -> Tally:
        """Run `count` workflows and return what became of them."""
        tally = Tally()
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._order.in_flight, count)):
                group.create_task(self._one_after_another(name, numbers, tally))
        return tally

    async def _one_after_another(self, name: str, numbers: Iterator[int], tally: Tally) -> None:
        for number in numbers:  # shared by the tasks: each number is taken once
            workflow_id = f"{self._order.prefix}-{name}-{number}"
            try:
                await self._one(workflow_id, f"benchmark-{number % ORIGINS}", tally)
            except (OdinError, WorkflowFailureError) as error:
                tally.failed += 1
                tally.note(f"{workflow_id}: {type(error).__name__}: {error}")

    async def _one(self, workflow_id: str, origin: str, tally: Tally) -> None:
        order = self._order
        began = time.perf_counter()
        handle = await self._client.start_workflow(
            order.workflow,
            args=[order.steps, order.payload],
            id=workflow_id,
            origin=origin,
            task_queue=order.task_queue,
            result_type=int,
        )
        result = await handle.result(timeout=timedelta(seconds=order.timeout_seconds))
        tally.latencies.append(time.perf_counter() - began)
        tally.last = handle
        if result != order.steps:
            tally.wrong += 1
            tally.note(f"{workflow_id}: returned {result!r} instead of {order.steps}")

    async def figures(self) -> LoadFigures:
        """Run the measured phase."""
        cpu, began = _cpu_seconds(), time.perf_counter()
        tally = await self.phase("run", self._order.count)
        wall, cpu = time.perf_counter() - began, _cpu_seconds() - cpu
        shown = tally.last if self._order.shows_steps else None
        return LoadFigures(
            wall_seconds=wall,
            latency_seconds=tally.latencies,
            cpu_seconds=cpu,
            wrong=tally.wrong,
            failed=tally.failed,
            problems=tally.problems,
            completed_us=[] if shown is None else await _completions(shown),
        )


async def _completions(handle: WorkflowHandle[int]) -> list[int]:
    """Return when each step of a workflow completed, as its history says."""
    events = handle.fetch_history_events(run_id=handle.run_id)
    return [event.recorded_at_us async for event in events if event.type == STEP_DONE]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _line() -> bytes:
    return await asyncio.to_thread(sys.stdin.buffer.readline)


def _tell(line: bytes) -> None:
    with suppress(BrokenPipeError):  # whoever asked is gone, and the next read says so
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


async def generate(stop: asyncio.Event) -> None:
    """Take one order after another until there is none; then set `stop`."""
    while line := await _line():
        order = msgspec.json.decode(line, type=Order)
        client = await Client.connect(
            *order.addresses, api_key=order.api_key, identity="odin bench"
        )
        async with client:
            generator = Generator(order, client)
            await generator.phase("warm", order.warmup_count)
            _tell(READY)
            if not await _line():
                break
            _tell(msgspec.json.encode(await generator.figures()) + b"\n")
    stop.set()


async def main() -> None:
    """Run until there are no more orders, or the process is told to stop."""
    await serve({"load": generate}, DRAIN_TIMEOUT)


if __name__ == "__main__":
    run(main, service="bench-load")
