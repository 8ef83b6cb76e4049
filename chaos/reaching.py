"""Which cluster a command means, and the runner for it: a local one, or one in containers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odin.runtime.clock import SystemClock

from .compose import compose_kit
from .faults.compose_levers import ComposeLevers, project_of
from .faults.docker import Docker
from .faults.docker_address import address_of, parsed
from .faults.levers import Levers
from .faults.stage import api_key_of_environment
from .runner import Runner
from .running import FILE, read_running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .faults.levers import Reach
    from .journal import Line


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster is meant.

    Attributes:
        folder: A local cluster's; None: ODIN_FOLDER, else `.odin`. Records of projects are below.
        project: A compose project; empty: the only one that has engines; None: the local cluster.
    """

    folder: Path | None = None
    project: str | None = None


def levers_of(where: Where) -> Reach:
    """Return how to reach a cluster, whether or not it runs.

    Raises:
        OdinError: which project is meant is not clear, or the engine of containers does not answer.
    """
    return Levers(where.folder, SystemClock()) if where.project is None else _compose(where)


def runner_of(where: Where, tell: Callable[[Line], None] = lambda _: None) -> Runner:
    """Return a runner for a cluster.

    Raises:
        OdinError: as for `levers_of`; or no engine of that project is published.
    """
    clock, api_key = SystemClock(), api_key_of_environment()
    if where.project is None:
        return Runner(levers=Levers(where.folder, clock), clock=clock, api_key=api_key, tell=tell)
    levers = _compose(where)
    asyncio.run(levers.refresh())
    return Runner(
        levers=levers,
        clock=clock,
        api_key=api_key or levers.api_key(),
        tell=tell,
        kit=compose_kit(levers),
    )


def unhealed(where: Where) -> list[ComposeLevers]:
    """Return every project of which a dead runner has left something on record."""
    base = Levers(where.folder, SystemClock()).folder
    found = []
    for file in sorted((base / "compose").glob(f"*/{FILE}")):
        running = read_running(file.parent)
        steps = running.undo if running is not None else []
        # The engine that was spoken to then, whichever the environment names now.
        told = next((one.address for one in steps if one.kind == "container"), "")
        docker = Docker(parsed(told) if told else address_of(os.environ))
        found.append(ComposeLevers(docker, file.parent.name, where.folder))
    return found


def _compose(where: Where) -> ComposeLevers:
    docker = Docker(address_of(os.environ))
    project = asyncio.run(project_of(docker, where.project or ""))
    return ComposeLevers(docker, project, where.folder)
