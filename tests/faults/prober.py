"""Starts short runs with little patience, and asks again for those that got no answer.

So starts are refused or left unknown while something is broken; each must come to one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from odin.client import Client
from odin.errors import OdinError

EVERY_SECONDS = 0.25
PATIENCE_SECONDS = 1.5
AGAIN_SECONDS = 30.0
PULSE_SECONDS = 0.2


@dataclass
class Prober:
    """The probes of one scenario."""

    name: str
    addresses: Sequence[str]
    started: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Probe until told to stop."""
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client([one])) for one in self.addresses]
            async with asyncio.TaskGroup() as group:
                while not stop.is_set():
                    number = len(self.started)
                    workflow_id = f"probe-{self.name}-{number}"
                    self.started.append(workflow_id)
                    group.create_task(self._probe(clients[number % len(clients)], workflow_id))
                    await paused(stop, EVERY_SECONDS)

    async def _probe(self, client: Client, workflow_id: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _start(client, workflow_id)
        except (TimeoutError, OdinError):
            self.unanswered.append(workflow_id)

    async def ask_again(self) -> list[str]:
        """Send what got no answer again under the same request id; return who still gets none."""
        left = []
        async with Client(self.addresses) as client:
            for workflow_id in self.unanswered:
                try:
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await _start(client, workflow_id)
                except (TimeoutError, OdinError) as error:
                    left.append(f"{workflow_id}: {type(error).__name__} {error}")
        return left


async def pulse(addresses: Sequence[str], ids: Iterable[str], stop: asyncio.Event) -> None:
    """Start short runs of these ids at these engines at a steady rate, whatever becomes of each."""
    async with Client(addresses) as client, asyncio.TaskGroup() as group:
        for workflow_id in ids:
            if stop.is_set():
                break
            group.create_task(_beat(client, workflow_id, stop))
            await paused(stop, PULSE_SECONDS)


async def _beat(client: Client, workflow_id: str, stop: asyncio.Event) -> None:
    if stop.is_set():
        return
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await client.start_workflow("bench_steps", args=[2, "x"], id=workflow_id)
    except (TimeoutError, OdinError):
        return  # its shard may have moved meanwhile


async def paused(stop: asyncio.Event, seconds: float) -> None:
    """Wait for the seconds, or until told to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


async def _start(client: Client, workflow_id: str) -> None:
    await client.start_workflow(
        "bench_steps", args=[0, "x"], id=workflow_id, request_id=f"r-{workflow_id}"
    )
