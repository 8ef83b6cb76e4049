"""Faults of containers: killed, paused, cut off from their network, restarted one by one.

What the engine says of a container's state is one witness; that nobody answers at its port, where
it has one that the host can reach, is the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odin.errors import FailedPreconditionError, NotFoundError, OdinError

from .base import Bite
from .links import answer
from .processes import ROLL_SECONDS
from .undo import Action, Undo, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .compose_levers import ComposeLevers
    from .docker import Container
    from .project import ComposePart
    from .stage import Stage

LOOK_SECONDS: Final = 0.25
STATE_SECONDS: Final = 10.0
# compose.yaml gives an engine as long to hand over.
GRACE_SECONDS: Final = 15


class Strike:
    """What the faults below have in common: parts, their containers, and what undoes them."""

    inject_seconds: float = 20.0
    verify_seconds: float = STATE_SECONDS + 5.0
    undone_by: Action = "start"

    def __init__(self, levers: ComposeLevers, stage: Stage, names: Sequence[str]) -> None:
        """Remember whom to strike."""
        self._levers = levers
        self._docker = levers.docker
        self._stage = stage
        self._names = names
        self._parts: list[ComposePart] = []
        self._steps: list[Undo] = []

    @property
    def target(self) -> str:
        """Whom it strikes."""
        return ", ".join(self._names)

    async def prepare(self) -> Sequence[Undo]:
        """Find the containers, and what brings each of them back."""
        self._parts = [self._levers.part(name) for name in self._names]
        self._steps = [step for part in self._parts for step in await self._undoing(part)]
        return self._steps

    async def _undoing(self, part: ComposePart) -> list[Undo]:
        return [self._step(part)]

    def _step(self, part: ComposePart, **fields: Any) -> Undo:  # noqa: ANN401 - fields of Undo
        return Undo(
            kind="container",
            action=self.undone_by,
            address=self._docker.address.text,
            container=part.container,
            **fields,
        )

    async def _do_to_all(self, action: str, **query: str) -> None:
        """Do it to every container, as near to one instant as can be."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in self._parts:
                    group.create_task(self._docker.do(action, part.container, **query))
        except* OdinError as group_of_errors:
            raise FailedPreconditionError(str(group_of_errors.exceptions[0])) from group_of_errors

    async def _seen(self, is_so: Callable[[ComposePart, Container], bool]) -> Bite:
        """Wait until the engine says so of every container, then try to get an answer from each."""
        ends = self._stage.clock.boottime() + STATE_SECONDS
        while True:
            found = [(part, await self._docker.inspect(part.container)) for part in self._parts]
            is_seen = all(is_so(part, one) for part, one in found)
            if is_seen or self._stage.clock.boottime() >= ends:
                break
            await self._stage.clock.sleep(LOOK_SECONDS)
        answers = await self._answers() if is_seen else {}
        evidence = {"states": {p.name: _told(one) for p, one in found}, "answers": answers}
        return Bite(is_seen and all(isinstance(one, str) for one in answers.values()), evidence)

    async def _answers(self) -> dict[str, float | str]:
        """Speak to each part that listens where the host reaches it."""
        listening = [part for part in self._parts if part.port]
        async with asyncio.TaskGroup() as group:
            asked = {
                part.name: group.create_task(
                    answer(self._stage, part.port, part.greeting, part.host), name=part.name
                )
                for part in listening
            }
        return {name: task.result() for name, task in asked.items()}

    async def heal(self) -> None:
        """Bring every container back."""
        for step in self._steps:
            await restored(step)


class KillContainers(Strike):
    """SIGKILL; the engine of containers starts none again that was killed by its API."""

    verify_seconds = STATE_SECONDS + 30.0

    def __init__(
        self, levers: ComposeLevers, stage: Stage, names: Sequence[str], *, is_brief: bool = False
    ) -> None:
        """Remember whom to kill, and whether to start it again as soon as it is seen dead."""
        super().__init__(levers, stage, names)
        self._is_brief = is_brief

    async def inject(self) -> None:
        """Kill them."""
        await self._do_to_all("kill", signal="SIGKILL")

    async def verify(self) -> Bite:
        """See that they are gone."""

        def is_gone(part: ComposePart, now: Container) -> bool:
            return now.state.status == "exited" or now.state.started_at != part.fingerprint

        bite = await self._seen(is_gone)
        if self._is_brief:
            await self.heal()
        return bite


class PauseContainers(Strike):
    """All processes of a container stand still, by the freezer of its cgroup."""

    undone_by: Action = "unpause"

    async def inject(self) -> None:
        """Pause them."""
        await self._do_to_all("pause")

    async def verify(self) -> Bite:
        """The engine says paused, and nobody answers."""
        return await self._seen(lambda _, now: now.state.status == "paused")


class CutContainers(Strike):
    """A container is taken out of every network: it reaches nobody, and nobody reaches it."""

    undone_by: Action = "connect"

    async def _undoing(self, part: ComposePart) -> list[Undo]:
        now = await self._docker.inspect(part.container)
        networks = now.network_settings.networks
        if not networks:
            raise NotFoundError(f"{part.name} is in no network", reason="NO_NETWORK")
        return [
            # Its id is among its names, and is given to it anew.
            self._step(part, network=name, aliases=_names(place.aliases, part.container))
            for name, place in networks.items()
        ]

    async def inject(self) -> None:
        """Cut them off."""
        for step in self._steps:
            await self._docker.disconnect(step.network, step.container)

    async def verify(self) -> Bite:
        """It is in no network, and nobody answers."""
        return await self._seen(lambda _, now: not now.network_settings.networks)


class RollContainers(Strike):
    """SIGTERM to each container in turn, the next when the one before is back: a deploy."""

    verify_seconds = 10.0

    def __init__(self, levers: ComposeLevers, stage: Stage, names: Sequence[str]) -> None:
        super().__init__(levers, stage, names)
        self._took: dict[str, float] = {}
        self._late: list[str] = []
        self.inject_seconds = 2 * ROLL_SECONDS * len(names)

    async def inject(self) -> None:
        """Restart one after the other."""
        clock = self._stage.clock
        for part in self._parts:
            began = clock.boottime()
            await self._docker.do("restart", part.container, t=str(GRACE_SECONDS))
            while not await self._is_back(part):
                if clock.boottime() - began >= ROLL_SECONDS:
                    self._late.append(part.name)
                    break
                await clock.sleep(LOOK_SECONDS)
            self._took[part.name] = round(clock.boottime() - began, 2)

    async def _is_back(self, part: ComposePart) -> bool:
        now = await self._docker.inspect(part.container)
        if now.state.status != "running" or now.state.started_at == part.fingerprint:
            return False
        if not part.port:
            return True
        return isinstance(await answer(self._stage, part.port, part.greeting, part.host), float)

    async def verify(self) -> Bite:
        """Every one of them has been started anew."""
        is_seen = not self._late and len(self._took) == len(self._names)
        return Bite(is_seen, {"seconds until back": self._took, "not back": self._late})


def _told(one: Container) -> str:
    networks = one.network_settings.networks
    return one.state.status if networks else f"{one.state.status}, in no network"


def _names(aliases: Sequence[str] | None, container: str) -> list[str]:
    return [one for one in aliases or () if not container.startswith(one)]
