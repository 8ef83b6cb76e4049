"""Where the Docker engine listens, as DOCKER_HOST says it; pure.

Whoever speaks to that socket can become root of its machine. So it is a socket of this machine, or
a port of its loopback; anything further away is refused, and so is TLS, which only that would need.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from odin.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "DOCKER_HOST"
DEFAULT: Final = "unix:///var/run/docker.sock"
PORT: Final = 2375
TLS: Final = "DOCKER_TLS_VERIFY"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the engine listens.

    Attributes:
        text: As it was given, such as "unix:///var/run/docker.sock"; holds no secret.
        socket: The path of a unix socket; empty for a port.
        base: The URL that requests begin with.
    """

    text: str
    socket: str
    base: str


def address_of(environ: Mapping[str, str]) -> Address:
    """Return the address that the environment names, else that of Docker on Linux.

    Raises:
        InvalidArgumentError: it is none that may be spoken to.
    """
    if environ.get(TLS):
        raise InvalidArgumentError(f"{TLS} is set, and experiments speak to no engine over TLS")
    return parsed(environ.get(VARIABLE) or DEFAULT)


def parsed(text: str) -> Address:
    """Return the address in a text.

    Raises:
        InvalidArgumentError: it is neither a unix socket nor a port of the loopback.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidArgumentError(f"{VARIABLE} {text!r} is no address: {error}") from None
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(text, parts.path, "http://docker")
    if parts.scheme == "tcp" and parts.hostname and not (parts.path or parts.username):
        if not _is_loopback(parts.hostname):
            raise InvalidArgumentError(
                f"{VARIABLE} {text!r} is another machine: whoever may speak to its engine is root "
                "there; only unix:// and the loopback are spoken to"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return Address(text, "", f"http://{host}:{port or PORT}")
    raise InvalidArgumentError(
        f"{VARIABLE} {text!r} is not understood: unix:///path or tcp://127.0.0.1:PORT"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
