"""How chaos reaches a compose project: by the Docker engine's API, and by what it says of it.

Postgres, RabbitMQ, Valkey and the mocks are reached at the containers' own addresses, as only a
host whose kernel runs the containers can: Linux, and an engine that runs as root.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn, cast

from odin.errors import FailedPreconditionError, InvalidArgumentError
from odin.runtime.services import module_of

from .docker import Container, Docker
from .levers import cluster_module
from .project import (
    ComposePart,
    ComposeSecrets,
    ComposeState,
    parts_of,
    projects_of,
    secrets_of,
    state_of,
)
from .stage import NoClusterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .levers import Breaker, Broken


class NotInContainersError(FailedPreconditionError):
    """Docker has no lever for this."""

    reason = "NOT_IN_CONTAINERS"


class _NoBreaker:
    """The levers of a local cluster, where there is none: broke nothing, and can break nothing."""

    def broken(self) -> list[Broken]:
        """Return what is broken by hand: what Docker has done stands on no record of ours."""
        return []

    async def heal(self, wanted: Callable[[Broken], bool] | None = None) -> list[Broken]:  # noqa: ARG002 - of Breaker.heal
        """Heal nothing."""
        return []

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInContainersError(f"{name!r} is a lever of a local cluster: `odin up`")


class ComposeLevers:
    """The project of one name; has the shape of `faults.levers.Reach`.

    Attributes:
        docker: The engine.
        project: Its name.
        base: The folder below which the records of all projects are.
        folder: Where the records of this one are.
        breaker: Refuses everything.
    """

    def __init__(self, docker: Docker, project: str, folder: Path | None) -> None:
        """Remember the project; nothing is asked yet.

        Raises:
            InvalidArgumentError: that is no project's name.
        """
        if not project.replace("-", "").replace("_", "").isalnum():
            raise InvalidArgumentError(f"{project!r} is not the name of a compose project")
        self.docker = docker
        self.project = project
        self.base: Path = cluster_module("place").Place.of(folder).folder
        self.folder: Path = self.base / "compose" / project
        self.breaker = cast("Breaker", _NoBreaker())
        self._identity = cluster_module("identity")
        self._parts: list[ComposePart] = []
        self._state: ComposeState | None = None
        self._secrets = ComposeSecrets()

    def state(self) -> ComposeState | None:
        """Return the project as it was at the last look."""
        return self._state

    def secrets(self) -> ComposeSecrets:
        """Return its addresses as they were at the last look."""
        return self._secrets

    def api_key(self) -> str | None:
        """Return the engines' token, as it was at the last look."""
        return self._secrets.api_token or None

    def part(self, name: str) -> ComposePart:
        """Return a part as it was at the last look.

        Raises:
            FailedPreconditionError: there is none of this name.
        """
        found = next((one for one in self._parts if one.name == name), None)
        if found is None:
            raise FailedPreconditionError(f"project {self.project!r} has no container {name!r}")
        return found

    def fingerprint(self, pid: int) -> str:
        """Return what tells a process of this machine from a later one with its pid."""
        return str(self._identity.fingerprint(pid))

    def is_same(self, pid: int | None, mark: str) -> bool:
        """Return whether that process still runs."""
        return bool(self._identity.is_same(pid, mark))

    def link_fault(self, **fields: object) -> object:
        """Refuse: there are no proxies.

        Raises:
            NotInContainersError: always.
        """
        raise NotInContainersError(f"the proxies of a local cluster are needed for {fields}")

    async def inspected(self) -> list[Container]:
        """Return every container of the project as it is now."""
        summaries = await self.docker.containers(self.project)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.docker.inspect(one.id)) for one in summaries]
        return [one.result() for one in tasks]

    async def refresh(self) -> None:
        """Look at the project anew.

        Raises:
            NoClusterError: it has no engine whose API is published on this machine's loopback.
            OdinError: the engine of containers does not answer.
        """
        try:
            containers = await self.inspected()
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        self._parts = parts_of(containers)
        self._state, self._secrets = state_of(self._parts), secrets_of(containers)
        if not self._state.engines:
            raise NoClusterError(
                f"no engine of compose project {self.project!r} publishes its API on 127.0.0.1: "
                "`docker compose up` starts them"
            )

    def guard(self, seconds: float) -> None:
        """Start a process that undoes what is on record after so long, or when this one has died.

        A local cluster has a supervisor for that; containers have none.
        """
        pid = os.getpid()
        subprocess.Popen(  # noqa: S603 - our own module and checked words
            [
                *(sys.executable, "-P", "-m", f"{module_of('chaos')}.guard"),
                *("--project", self.project, "--folder", str(self.base)),
                *("--pid", str(pid), "--mark", self.fingerprint(pid), "--seconds", str(seconds)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the runner, which heals by itself
        )


async def project_of(docker: Docker, wanted: str) -> str:
    """Return the project that is meant: the named one, else the only one that has engines of odin.

    Raises:
        NoClusterError: there is none.
        InvalidArgumentError: there are several, and none is named.
        OdinError: the engine of containers does not answer.
    """
    if wanted:
        return wanted
    found = projects_of(await docker.containers())
    if not found:
        raise NoClusterError(
            f"{docker.address.text} has no compose project with an engine of odin: "
            "`docker compose up` starts one"
        )
    if len(found) > 1:
        raise InvalidArgumentError(f"which project? --compose names it: {', '.join(found)}")
    return found[0]
