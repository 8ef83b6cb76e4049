"""I20 from outside: each engine, asked by itself, says of each start what its client was told."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from odin.client import Client
from odin.errors import OdinError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odin.core.requests import Outcome

PATIENCE: Final = timedelta(seconds=3)


async def agreement(
    engines: Sequence[str], api_key: str | None, told: Mapping[str, Outcome]
) -> tuple[list[str], int]:
    """Ask every engine how the starts have ended.

    An engine that does not answer is left out: that it is away is judged elsewhere.

    Args:
        engines: Their addresses.
        api_key: Their token.
        told: Workflow id to the outcome that the start's own client was told.

    Returns:
        What differs, in words, and how many answers were compared.
    """
    wrong: list[str] = []
    compared = 0

    async def ask(engine: str) -> None:
        nonlocal compared
        async with Client([engine], api_key=api_key, identity="chaos", timeout=PATIENCE) as client:
            for workflow_id, outcome in told.items():
                try:
                    found = await client.get_workflow_handle(workflow_id).wait(timeout=PATIENCE)
                except OdinError:
                    return
                compared += 1
                if found != outcome:
                    wrong.append(
                        f"{workflow_id} ended as {outcome.status}; {engine} says {found.status}"
                        " or gives another result"
                    )

    async with asyncio.TaskGroup() as group:
        for engine in engines:
            group.create_task(ask(engine), name=f"ask {engine}")
    return wrong, compared
