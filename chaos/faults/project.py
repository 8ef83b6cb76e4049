"""A compose project as chaos sees it: its containers as the parts of a cluster; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from .docker import NUMBER_LABEL, PROJECT_LABEL, SERVICE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .docker import Container, Summary
    from .levers import Part

# Services of compose.yaml → what they are in a cluster.
KINDS: Final = {
    "postgres": "server",
    "rabbitmq": "server",
    "valkey": "server",
    "payments": "mock",
    "shipping": "mock",
    "drivers": "mock",
    "load": "load",
    "migrate": "migrate",
}
_NUMBERED: Final = re.compile(r"(engine|worker)(-\d+)?")
ENGINE_PORT: Final = "7300"
MOCK_PORT: Final = "7400"
LOOPBACK: Final = "127.0.0.1"
# Service → the words by which `faults.links` greets it.
GREETINGS: Final = {"postgres": "postgres", "rabbitmq": "broker", "valkey": "valkey"}
SERVER_PORTS: Final = {"postgres": 5432, "rabbitmq": 5672, "valkey": 6379}


@dataclass(slots=True)
class ComposePart:
    """A container as a part of the cluster; has the shape of `faults.levers.Part`.

    Attributes:
        name: Its service; of a service that is scaled, with the container's number.
        kind: engine, worker, mock, server, load or migrate.
        phase: running, done for what has ended well by itself, else the container's state.
        fingerprint: Tells this run of the container from an earlier one.
        restarts: How often the engine has started it again by itself.
        address: Where it is reached from the host; empty if it is not.
        container: Its id.
        host: The host to speak to, and `port` there; empty and 0 if it listens nowhere.
        port: See `host`.
        greeting: How it is greeted; empty for HTTP.
        pid: None: it is Docker that knows it.
    """

    name: str
    kind: str
    phase: str
    fingerprint: str
    restarts: int
    address: str
    container: str
    host: str = ""
    port: int = 0
    greeting: str = ""
    pid: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and is not paused."""
        return self.phase == "running"


@dataclass(slots=True)
class ComposeState:
    """The project as it is; has the shape of `faults.levers.State`."""

    parts: list[Part]
    engines: list[str]
    phase: str = "running"
    broker: str = "rabbitmq"

    @property
    def is_supervised(self) -> bool:
        """Whether there is anything to be asked."""
        return bool(self.engines)


@dataclass(slots=True)
class ComposeSecrets:
    """Addresses with passwords, as they are reached from the host; shows none of them."""

    postgres_dsn: str = field(default="", repr=False)
    amqp_url: str = field(default="", repr=False)
    valkey_url: str = field(default="", repr=False)
    mock_admin_token: str = field(default="", repr=False)
    proxy_token: str = field(default="", repr=False)
    api_token: str = field(default="", repr=False)


def kind_of(service: str) -> str:
    """Return what a service is in a cluster; "other" for one that odin does not know."""
    found = _NUMBERED.fullmatch(service)
    return found[1] if found else KINDS.get(service, "other")


def name_of(labels: dict[str, str]) -> str:
    """Return the name of a container's part: its service, with its number if there are more."""
    number = labels.get(NUMBER_LABEL, "1")
    service = labels.get(SERVICE_LABEL, "")
    return service if number == "1" else f"{service}.{number}"


def projects_of(summaries: Iterable[Summary]) -> list[str]:
    """Return the projects that have an engine of odin."""
    return sorted(
        {
            labels[PROJECT_LABEL]
            for one in summaries
            if PROJECT_LABEL in (labels := one.labels or {})
            and kind_of(labels.get(SERVICE_LABEL, "")) == "engine"
        }
    )


def parts_of(containers: Iterable[Container]) -> list[ComposePart]:
    """Return the parts that these containers are, by name."""
    return sorted((_part(one) for one in containers), key=lambda part: part.name)


def state_of(parts: Sequence[ComposePart]) -> ComposeState:
    """Return the project of these parts."""
    engines = [one.address for one in parts if one.kind == "engine" and one.address]
    return ComposeState([*parts], engines)


def secrets_of(containers: Sequence[Container]) -> ComposeSecrets:
    """Return the addresses that the engines were given, with each service's own IP address.

    A service without one at the moment stays a name: nobody answers there, which is true.
    """
    hosts = {name_of(one.labels): _ip(one) for one in containers if _ip(one)}
    environs = {name_of(one.labels): one.environ for one in containers}
    of_engine = _first(environs, "engine")
    return ComposeSecrets(
        postgres_dsn=reached(of_engine.get("ODIN_POSTGRES_DSN", ""), hosts),
        amqp_url=reached(of_engine.get("ODIN_AMQP_URL", ""), hosts),
        valkey_url=reached(of_engine.get("ODIN_VALKEY_URL", ""), hosts),
        mock_admin_token=_first(environs, "mock").get("ODIN_MOCK_ADMIN_TOKEN", ""),
        api_token=of_engine.get("ODIN_API_TOKEN", ""),
    )


def reached(url: str, hosts: dict[str, str]) -> str:
    """Return a URL with the IP address of its host in place of the service's name."""
    parts = urlsplit(url)
    address = hosts.get(parts.hostname or "")
    if not address:
        return url
    login, at, place = parts.netloc.rpartition("@")
    _, colon, port = place.partition(":")
    return parts._replace(netloc=f"{login}{at}{address}{colon}{port}").geturl()


def _first(environs: dict[str, dict[str, str]], kind: str) -> dict[str, str]:
    return next((environs[name] for name in sorted(environs) if kind_of(name) == kind), {})


def _ip(one: Container) -> str:
    return next((n.ip_address for n in one.network_settings.networks.values() if n.ip_address), "")


def _published(one: Container) -> str:
    """Return where an engine's API is published on the loopback; empty if it is not."""
    wanted = f"{ENGINE_PORT}/tcp"
    # The second is what was asked for: a container that does not run has no ports of the first.
    for ports in (one.network_settings.ports, one.host_config.port_bindings):
        for place in (ports or {}).get(wanted) or ():
            if place.host_ip == LOOPBACK and place.host_port not in ("", "0"):
                return f"{place.host_ip}:{place.host_port}"
    return ""


def _part(one: Container) -> ComposePart:
    service = one.labels.get(SERVICE_LABEL, "")
    kind, host, port, address = kind_of(service), "", 0, ""
    if kind == "engine" and (place := _published(one)):
        host, _, number = place.partition(":")
        port, address = int(number), f"http://{place}"
    elif kind == "mock" and (host := _ip(one)):
        port = int(one.environ.get("ODIN_MOCK_PORT") or MOCK_PORT)
        address = f"http://{host}:{port}"
    elif service in SERVER_PORTS and (host := _ip(one)):
        port = SERVER_PORTS[service]
    is_done = one.state.status == "exited" and kind == "migrate" and one.state.exit_code == 0
    return ComposePart(
        name=name_of(one.labels),
        kind=kind,
        phase="done" if is_done else one.state.status,
        fingerprint=one.state.started_at,
        restarts=one.restart_count,
        address=address,
        container=one.id,
        host=host,
        port=port,
        greeting=GREETINGS.get(service, ""),
    )
