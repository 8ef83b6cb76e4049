"""What is asked of the Docker engine: a few calls of its HTTP API, over its socket.

The paths carry the version that the engine itself names, since engines refuse versions that they
know no longer; the calls are the same in all of them from 1.24 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from odin.errors import FailedPreconditionError, NotFoundError, OdinError, UnavailableError

if TYPE_CHECKING:
    from .docker_address import Address

TIMEOUT: Final = aiohttp.ClientTimeout(total=60.0, sock_connect=3.0)
PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
NUMBER_LABEL: Final = "com.docker.compose.container-number"
_NOT_MODIFIED: Final = 304
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_BAD: Final = 400
_VERSION_HEADER: Final = "Api-Version"


class Port(msgspec.Struct, rename="pascal", frozen=True):
    """Where a port of a container is published."""

    host_ip: str = ""
    host_port: str = ""


class Endpoint(msgspec.Struct, rename="pascal", frozen=True):
    """A container's place in a network."""

    aliases: list[str] | None = None
    ip_address: str = msgspec.field(default="", name="IPAddress")


class Status(msgspec.Struct, rename="pascal", frozen=True):
    """How a container is.

    Attributes:
        status: created, running, paused, restarting, removing, exited or dead.
        started_at: When its process was started last.
        exit_code: How the last one ended.
    """

    status: str
    started_at: str = ""
    exit_code: int = 0


class Networks(msgspec.Struct, rename="pascal", frozen=True):
    """A container's networks, by name, and its published ports, by "7300/tcp"."""

    networks: dict[str, Endpoint] = {}
    ports: dict[str, list[Port] | None] | None = None


class Config(msgspec.Struct, rename="pascal", frozen=True):
    """What a container was made with; `env` holds secrets."""

    env: list[str] | None = None
    labels: dict[str, str] | None = None


class HostConfig(msgspec.Struct, rename="pascal", frozen=True):
    """What of the host a container was promised."""

    port_bindings: dict[str, list[Port] | None] | None = None


class Container(msgspec.Struct, rename="pascal", frozen=True):
    """A container as the engine describes it; only what is used here."""

    id: str
    state: Status
    config: Config
    network_settings: Networks
    host_config: HostConfig = HostConfig()
    restart_count: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.config.labels or {}

    @property
    def environ(self) -> dict[str, str]:
        """Its variables, secrets among them."""
        pairs = (one.partition("=") for one in self.config.env or ())
        return {name: value for name, _, value in pairs}

    def __repr__(self) -> str:
        """Its variables are not for any log."""
        return f"Container({self.id[:12]}, {self.state.status})"


class Summary(msgspec.Struct, rename="pascal", frozen=True):
    """A container in a list."""

    id: str
    labels: dict[str, str] | None = None


class Docker:
    """The engine at one address."""

    def __init__(self, address: Address) -> None:
        """Remember where it listens; nothing is connected yet."""
        self.address = address
        self._version = ""

    async def containers(self, project: str = "") -> list[Summary]:
        """Return the containers of a compose project, or of all of them; stopped ones too.

        Raises:
            OdinError: as for every call.
        """
        label = f"{PROJECT_LABEL}={project}" if project else PROJECT_LABEL
        filters = msgspec.json.encode({"label": [label]}).decode()
        content = await self._call("GET", "/containers/json", {"all": "true", "filters": filters})
        found: list[Summary] = _decoded(content, list[Summary])
        return found

    async def inspect(self, container: str) -> Container:
        """Return a container as it is now.

        Raises:
            NotFoundError: there is none of this id.
            OdinError: as for every call.
        """
        content = await self._call("GET", f"/containers/{quote(container, safe='')}/json")
        found: Container = _decoded(content, Container)
        return found

    async def do(self, action: str, container: str, **query: str) -> None:
        """Do one of kill, pause, unpause, stop, start, restart; one that is done already is fine.

        Raises:
            NotFoundError: there is no such container.
            FailedPreconditionError: it is not in a state for that.
            UnavailableError: the engine does not answer, or could not do it.
        """
        await self._call("POST", f"/containers/{quote(container, safe='')}/{action}", query)

    async def disconnect(self, network: str, container: str) -> None:
        """Take a container out of a network; errors as for `do`."""
        body = {"Container": container, "Force": False}
        await self._call("POST", f"/networks/{quote(network, safe='')}/disconnect", body=body)

    async def connect(self, network: str, container: str, aliases: list[str]) -> None:
        """Put a container into a network, under these names; errors as for `do`."""
        body = {"Container": container, "EndpointConfig": {"Aliases": aliases}}
        await self._call("POST", f"/networks/{quote(network, safe='')}/connect", body=body)

    async def _call(
        self, method: str, path: str, query: dict[str, str] | None = None, body: object = None
    ) -> bytes:
        socket = self.address.socket
        connector = aiohttp.UnixConnector(socket) if socket else aiohttp.TCPConnector()
        try:
            # One session a call: calls are few, and nothing is held over an engine's restart.
            async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
                prefix = await self._prefix(session)
                url = f"{self.address.base}{prefix}{path}"
                async with session.request(method, url, params=query, json=body) as answer:
                    content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(
                f"no Docker engine answers at {self.address.text}: {type(error).__name__} {error}"
            ) from error
        if answer.status >= _BAD:
            raise _refusal(answer.status, content, f"{method} {path}")
        return content

    async def _prefix(self, session: aiohttp.ClientSession) -> str:
        """Return the beginning of every path: the version that the engine names."""
        if not self._version:
            async with session.get(f"{self.address.base}/_ping") as answer:
                self._version = answer.headers.get(_VERSION_HEADER, "")
                if answer.status >= _BAD or not self._version:
                    raise UnavailableError(f"{self.address.text} is no Docker engine")
        return f"/v{self._version}"


def _refusal(status: int, content: bytes, what: str) -> OdinError:
    try:
        said = str(msgspec.json.decode(content)["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        said = content.decode(errors="replace")[:200]
    text = f"the Docker engine refuses {what} ({status}): {said}"
    if status == _NOT_FOUND:
        return NotFoundError(text, reason="NO_CONTAINER")
    return FailedPreconditionError(text) if status == _CONFLICT else UnavailableError(text)


def _decoded(content: bytes, shape: Any) -> Any:  # noqa: ANN401 - the shape that is asked for
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"the Docker engine says what is not understood: {error}") from error
