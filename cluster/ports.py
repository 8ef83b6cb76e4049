"""Ports for the parts: free, and fixed for a part as long as the cluster runs.

They are taken from below the range that the kernel gives to outgoing connections: a part that is
killed must find its port free again, and not lent to somebody's connection meanwhile. And they are
reserved among the clusters of one machine: between the choice of a port and its use seconds pass.
"""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odin.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 20_000
_EPHEMERAL_DEFAULT: Final = 32_768
_ROOM_MIN: Final = 1_000
_TRIES: Final = 200


class Reservations:
    """The ports that this process has reserved; given back by `close`, or by the end of it.

    A reservation is a name that only one process of the machine can hold (an abstract address of
    Linux). It keeps other clusters away; whoever else takes a port is found when a part starts.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Reserve the port; return whether nobody else holds it."""
        if not sys.platform.startswith("linux"):
            return True
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0odin-port-{port}")
        except OSError:
            name.close()
            return False
        self._held.append(name)
        return True

    def close(self) -> None:
        """Give all back."""
        while self._held:
            self._held.pop().close()


def choose_ports(
    names: Iterable[str],
    preferred: Mapping[str, Sequence[int]] | None = None,
    reservations: Reservations | None = None,
) -> dict[str, int]:
    """Return a free loopback port for each name, the first preferred one that is free.

    Args:
        names: Who needs one.
        preferred: What they had the last time, so that addresses stay.
        reservations: Takes the reservations, for whoever keeps the ports for longer.

    Raises:
        UnavailableError: no free port was found.
    """
    top = _ephemeral_begin()
    dice = random.SystemRandom()
    chosen: dict[str, int] = {}
    for name in names:
        candidates = list((preferred or {}).get(name, ()))
        candidates += [dice.randrange(LOWEST, top) for _ in range(_TRIES)]
        others = frozenset(chosen.values())
        chosen[name] = _first_free([c for c in candidates if c not in others], reservations)
    return chosen


def _first_free(candidates: Iterable[int], reservations: Reservations | None) -> int:
    for port in candidates:
        if _nobody_listens(port) and (reservations is None or reservations.take(port)):
            return port
    raise UnavailableError(f"no free port was found on {LOOPBACK} in {_TRIES} tries")


def _nobody_listens(port: int) -> bool:
    """Return whether a server could take the port, with closed connections of it still waiting.

    Two sockets that may reuse an address can both be bound to it until one listens: the probe
    holds nothing, so those who choose keep apart what they chose.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _ephemeral_begin() -> int:
    """Return where the range of outgoing connections begins; a usable bound in any case."""
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        begin = int(text.split()[0])
    except (OSError, ValueError, IndexError):
        begin = _EPHEMERAL_DEFAULT
    return begin if begin >= LOWEST + _ROOM_MIN else 65_535
