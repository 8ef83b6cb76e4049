"""Starts short runs with little patience, and asks again for those that got no answer.

So starts are refused or left unknown while something is broken; each must come to one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from odin.client import Client
from odin.errors import OdinError

EVERY_SECONDS = 0.25
PATIENCE_SECONDS = 1.5
AGAIN_SECONDS = 30.0


@dataclass
class Prober:
    """The probes of one scenario."""

    name: str
    addresses: Sequence[str]
    started: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Probe until told to stop."""
        async with Client(self.addresses) as client, asyncio.TaskGroup() as group:
            while not stop.is_set():
                workflow_id = f"probe-{self.name}-{len(self.started)}"
                self.started.append(workflow_id)
                group.create_task(self._probe(client, workflow_id))
                try:
                    async with asyncio.timeout(EVERY_SECONDS):
                        await stop.wait()
                except TimeoutError:
                    continue

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


async def _start(client: Client, workflow_id: str) -> None:
    await client.start_workflow(
        "bench_steps", args=[0, "x"], id=workflow_id, request_id=f"r-{workflow_id}"
    )
