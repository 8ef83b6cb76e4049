"""How chaos reaches the local cluster: its levers and files, resolved by name at run time.

No service imports another (see the layer rule). What is used here of the cluster is what `odin
break` and `odin ps` use; the shapes below say which part of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from odin.runtime.services import module_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from odin.runtime.clock import Clock


class Part(Protocol):
    """One part of the cluster, as its state file has it."""

    name: str
    kind: str
    phase: str
    pid: int | None
    fingerprint: str
    restarts: int
    address: str

    @property
    def is_alive(self) -> bool:
        """Whether the recorded process runs at this moment."""
        ...


class State(Protocol):
    """The cluster's state file."""

    phase: str
    broker: str
    engines: list[str]
    parts: list[Part]

    @property
    def is_supervised(self) -> bool:
        """Whether somebody keeps the parts running."""
        ...


class Secrets(Protocol):
    """Addresses with passwords, from the file that only its owner may read."""

    postgres_dsn: str
    amqp_url: str
    valkey_url: str
    mock_admin_token: str
    proxy_token: str


class Broken(Protocol):
    """One thing that was broken."""

    id: str
    kind: str
    parts: list[str]
    what: str
    processes: list[tuple[int, str]]
    fault_id: str


class Link(Protocol):
    """The name of a link."""

    part: str
    dependency: str


class LinkView(Protocol):
    """One link as it is."""

    port: int
    open_count: int
    accepted_count: int

    @property
    def name(self) -> Link:
        """Its name."""
        ...


class Breaker(Protocol):
    """What `odin break` works with."""

    def kill(self, names: Sequence[str]) -> Broken:
        """SIGKILL parts."""
        ...

    def restart(self, names: Sequence[str]) -> Broken:
        """Ask parts to end in order."""
        ...

    def freeze(self, names: Sequence[str], seconds: float) -> Broken:
        """SIGSTOP parts."""
        ...

    def guard(self, names: Sequence[str], seconds: float) -> Broken:
        """Put parts on record as to be continued, and do nothing to them."""
        ...

    async def alarm(self, seconds: float) -> Broken:
        """Raise the broker's memory alarm."""
        ...

    async def disconnect(self) -> Broken:
        """Terminate odin's backends in Postgres."""
        ...

    async def links(self, part: str, *, to: str = "", from_: str = "") -> list[Link]:
        """Return links of a part."""
        ...

    async def link_views(self) -> list[LinkView]:
        """Return every link as it is."""
        ...

    async def break_links(self, links: Sequence[Link], fault: object, seconds: float) -> Broken:
        """Let a fault begin on links."""
        ...

    async def match_count(self, broken: Broken) -> int:
        """Return how often a fault's pattern was found."""
        ...

    def broken(self) -> list[Broken]:
        """Return what is broken at the moment."""
        ...

    async def heal(self, wanted: Callable[[Broken], bool] = ...) -> list[Broken]:
        """Heal what is wanted."""
        ...


class Reach(Protocol):
    """How chaos reaches a cluster, whatever it runs in.

    Attributes:
        folder: Where its records of experiments are.
        breaker: The levers of a local cluster; those of another one refuse, and broke nothing.
    """

    folder: Path
    breaker: Breaker

    def state(self) -> State | None:
        """Return the cluster as it was seen last; None if there is none."""
        ...

    def secrets(self) -> Secrets:
        """Return its addresses, with passwords."""
        ...

    def fingerprint(self, pid: int) -> str:
        """Return what tells a process of this machine from a later one with its pid."""
        ...

    def is_same(self, pid: int | None, mark: str) -> bool:
        """Return whether that process still runs."""
        ...

    def link_fault(self, **fields: object) -> object:
        """Return a fault of links."""
        ...

    def api_key(self) -> str | None:
        """Return the engines' token, where the cluster tells it."""
        ...

    async def refresh(self) -> None:
        """Look at the cluster anew.

        Raises:
            OdinError: it cannot be looked at.
        """
        ...

    def guard(self, seconds: float) -> None:
        """See to it that what is on record is undone after so long, even if this process dies."""
        ...


def cluster_module(name: str) -> Any:  # noqa: ANN401 - resolved at run time, see the layer rule
    """Return a module of the cluster package, wherever this installation has it."""
    return importlib.import_module(f"{module_of('cluster')}.{name}")


class Levers:
    """The cluster of one folder.

    Attributes:
        folder: Its files.
        breaker: Breaks and heals it.
    """

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        """Find the folder: the given one, else ODIN_FOLDER, else `.odin`."""
        self._state = cluster_module("state")
        self._identity = cluster_module("identity")
        self._place = cluster_module("place").Place.of(folder)
        self.folder: Path = self._place.folder
        self.breaker: Breaker = cluster_module("breaking").Breaker(self._place, clock)

    def state(self) -> State | None:
        """Return the state file; None if there is none."""
        found: State | None = self._state.read_state(self._place)
        return found

    def secrets(self) -> Secrets:
        """Return the secrets; empty ones if there are none."""
        found: Secrets = self._state.read_secrets(self._place)
        return found

    def fingerprint(self, pid: int) -> str:
        """Return what tells this process from a later one with its pid; empty if it is gone."""
        return str(self._identity.fingerprint(pid))

    def is_same(self, pid: int | None, mark: str) -> bool:
        """Return whether the recorded process still runs."""
        return bool(self._identity.is_same(pid, mark))

    def api_key(self) -> str | None:
        """Return none: local engines have one only if the environment names it."""
        return None

    async def refresh(self) -> None:
        """Leave it: the state file is read each time."""

    def guard(self, seconds: float) -> None:
        """Leave it to the cluster's supervisor, which heals by time what is on its own record."""

    def link_fault(self, **fields: object) -> object:
        """Return a fault of links, of the fields that the proxy knows.

        Raises:
            InvalidArgumentError: it makes no sense.
        """
        fault = cluster_module("proxy.faults").Fault(**fields)
        fault.check()
        return fault
