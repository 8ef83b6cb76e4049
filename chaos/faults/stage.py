"""Where one experiment takes place: the cluster, its dice, its victims."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odin.errors import FailedPreconditionError

from .books import Books

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from odin.runtime.clock import Clock

    from .dice import Dice
    from .levers import Part, Reach, State

POLL_SECONDS: Final = 0.1


class NoClusterError(FailedPreconditionError):
    """No cluster runs where one is to be broken."""

    reason = "NO_CLUSTER"


@dataclass
class Stage:
    """The cluster as one experiment sees it.

    Attributes:
        levers: Reach it.
        clock: Measures.
        dice: Choose victims, by a seed or as an earlier experiment did.
        experiment_id: Names the experiment, and all that it starts.
        seconds: How long the fault is held.
        api_key: The engines' token.
        victims: Who was chosen, by kind; the same for all faults of an experiment.
        struck: Every part that a fault strikes.
        group: Where what goes on beside the experiment runs; it ends with it.
    """

    levers: Reach
    clock: Clock
    dice: Dice
    experiment_id: str
    seconds: float
    api_key: str | None = None
    victims: dict[str, str] = field(default_factory=dict)
    struck: list[str] = field(default_factory=list)
    group: asyncio.TaskGroup | None = None

    @property
    def folder(self) -> Path:
        """The cluster's files."""
        return self.levers.folder

    @property
    def state(self) -> State:
        """The state file.

        Raises:
            NoClusterError: no cluster runs.
        """
        found = self.levers.state()
        if found is None or not found.is_supervised:
            raise NoClusterError(
                f"no cluster runs in {self.levers.folder}: `odin up --proxies --load 5` starts one"
            )
        return found

    @property
    def books(self) -> Books:
        """Postgres, beside every proxy."""
        return Books(self.levers.secrets().postgres_dsn)

    def names(self, kind: str) -> list[str]:
        """Return the parts of a kind, such as "engine", "worker", "mock"."""
        return [one.name for one in self.state.parts if one.kind == kind]

    def part(self, name: str) -> Part:
        """Return a part as it is.

        Raises:
            FailedPreconditionError: there is none of this name.
        """
        for one in self.state.parts:
            if one.name == name:
                return one
        raise FailedPreconditionError(f"this cluster has no part {name!r}")

    def victim(self, kind: str) -> str:
        """Return the part of a kind that this experiment strikes.

        Raises:
            FailedPreconditionError: none of them lives, or not the one that is asked for.
        """
        if kind not in self.victims:
            alive = [one.name for one in self.state.parts if one.kind == kind and one.is_alive]
            if not alive:
                raise FailedPreconditionError(f"no {kind} is alive")
            self.victims[kind] = self.dice.choose(kind, alive)
        self.struck.append(self.victims[kind])
        return self.victims[kind]

    def everyone(self, kind: str) -> list[str]:
        """Return the parts of a kind as victims, all of them.

        Raises:
            TargetGoneError: one that is asked for is not there.
        """
        names = self.names(kind)
        self.struck += (found := self.dice.draw(f"every {kind}", lambda _: names, names))
        return found

    async def choose_owner(self) -> None:
        """Choose the engine that is struck, if one is: one that owns shards.

        Raises:
            BooksClosedError: Postgres does not answer.
            TargetGoneError: the one that is asked for owns none.
        """
        if self.dice.given is not None and "engine" not in self.dice.given:
            return  # none was struck
        owners = sorted((await self.books.owners()).keys() & set(self.names("engine")))
        if owners:
            self.victims["engine"] = self.dice.choose("engine", owners)

    @property
    def drawn(self) -> dict[str, Any]:
        """What was drawn; of an engine that was chosen and not struck, nothing."""
        is_struck = self.victims.get("engine") in self.struck
        return {name: one for name, one in self.dice.drawn.items() if name != "engine" or is_struck}

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Let something go on beside the experiment; return it, so that it can be ended."""
        assert self.group is not None, "inside an experiment"  # noqa: S101 - for the type checker
        return self.group.create_task(work, name=name)

    async def until(self, what: Callable[[], bool], seconds: float) -> bool:
        """Wait until `what()`; return whether it came true in time."""
        ends = self.clock.boottime() + seconds
        while not what():
            if self.clock.boottime() >= ends:
                return False
            await self.clock.sleep(POLL_SECONDS)
        return True


def api_key_of_environment() -> str | None:
    """Return the engines' token, if the environment names one."""
    return os.environ.get("ODIN_API_KEY") or os.environ.get("ODIN_API_TOKEN")
