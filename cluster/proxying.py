"""Puts a proxy into every link of a cluster: which links there are, and how parts reach through it.

One process carries all links. A process per part would multiply memory and control addresses and
gain nothing: links share no state but the process, and what a fault does to one never waits for
another. If the proxy ends it is started again on the same ports; parts see a network that failed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from odin.errors import ConfigurationError
from odin.runtime.services import environment_of, module_of

from .parts import Part, Reach
from .ports import LOOPBACK, choose_ports
from .proxy.settings import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .ports import Reservations

NAME: Final = "proxy"
# What `reach` is asked for beside addresses.
_NO_ADDRESS: Final = ("mock-token",)
_PORTS: Final[Mapping[str, int]] = {
    "postgres": 5432,
    "postgresql": 5432,
    "amqp": 5672,
    "amqps": 5671,
    "valkey": 6379,
    "valkeys": 6379,
    "redis": 6379,
    "rediss": 6379,
    "http": 80,
}


@dataclass(frozen=True, slots=True)
class Proxied:
    """A reach through the proxy.

    Attributes:
        wires: Every link.
    """

    wires: Sequence[Wire]
    _direct: Reach
    _ports: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def reach(self, part: str, dependency: str) -> str:
        """Return the address under which the part reaches the dependency."""
        address = self._direct(part, dependency)
        port = self._ports.get((part, dependency))
        return address if port is None else _moved(address, port)


def proxied(
    plan: Callable[[Reach], object], direct: Reach, reservations: Reservations | None
) -> Proxied:
    """Return a reach through a proxy for every link that the plan asks for.

    Args:
        plan: Plans the parts with a reach; what it asks for are the links.
        direct: Where everything really is.
        reservations: Takes the ports.
    """
    asked: dict[tuple[str, str], str] = {}

    def note(part: str, dependency: str) -> str:
        address = direct(part, dependency)
        if address and dependency not in _NO_ADDRESS and _target(address) is not None:
            asked[part, dependency] = address
        return address

    plan(note)
    ports = choose_ports([f"{part}>{to}" for part, to in asked], None, reservations)
    by_link = {link: ports[">".join(link)] for link in asked}
    wires = []
    for (part, dependency), address in asked.items():
        target = _target(address)
        assert target is not None, "noted only with one"  # noqa: S101 - for the type checker
        wires.append(Wire(part, dependency, by_link[part, dependency], *target))
    return Proxied(wires, direct, by_link)


def proxy_part(wires: Sequence[Wire], port: int, token: str, environ: Mapping[str, str]) -> Part:
    """Return the proxy as a part.

    Args:
        wires: The links that it carries.
        port: Where it takes orders.
        token: What lets somebody give them.
        environ: The environment of whoever starts the cluster.
    """
    return Part(
        name=NAME,
        kind="proxy",
        command=[sys.executable, "-P", "-m", f"{module_of('cluster')}.proxy"],
        environ={
            **environment_of(dict(environ)),
            "ODIN_PROXY_PORT": str(port),
            "ODIN_PROXY_TOKEN": token,
            "ODIN_PROXY_LINKS": msgspec.json.encode(wires).decode(),
        },
        port=port,
        ready_path="/v1/ready",
    )


def _target(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for a socket in the file system."""
    url = urlsplit(address)
    if url.scheme == "unix" or not url.hostname:
        return None
    port = url.port or _PORTS.get(url.scheme)
    if port is None:
        raise ConfigurationError(f"an address of scheme {url.scheme!r} needs a port to be proxied")
    return url.hostname, port


def _moved(address: str, port: int) -> str:
    """Return the address with host and port replaced, the rest as it was."""
    url = urlsplit(address)
    user, at, _ = url.netloc.rpartition("@")
    return urlunsplit(url._replace(netloc=f"{user}{at}{LOOPBACK}:{port}"))
