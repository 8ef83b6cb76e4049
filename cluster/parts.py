"""The parts of a local cluster, as data: which commands, with which environment, in which order.

Every part is given the addresses of what it depends on by name, one by one (`Reach`): whatever is
to stand between two parts, such as a proxy that can delay or cut the connection, is put there by
another `Reach`, and no part knows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from odin.runtime.services import command_of, environment_of, module_of

from .ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .options import Options
    from .place import Place

Reach: TypeAlias = Callable[[str, str], str]
"""(part, dependency) → the address under which this part is to reach that dependency."""

MOCKS: Final = ("payments", "shipping", "drivers")
# Which kinds end first: nobody is to lose what it still needs for an orderly end.
STOP_ORDER: Final = ("chaos", "load", "worker", "mock", "engine", "proxy")
START_ORDER: Final = (("proxy",), ("engine", "mock"), ("worker",), ("load",), ("chaos",))
# Settings of somebody else's deployment that would move or rename our parts.
_NOT_OURS: Final = ("ODIN_HTTP_ADVERTISE", "ODIN_MOCK_DSN", "ODIN_MOCK_HOST", "ODIN_LOAD_RUN")


@dataclass(frozen=True, slots=True)
class Part:
    """One process to be kept running.

    Attributes:
        name: Unique in the cluster; names its log file.
        kind: What it is; the order of starting and stopping goes by kind.
        command: The program and its arguments.
        environ: The whole environment of the process.
        port: Where it listens on loopback; 0 if it does not.
        ready_path: An HTTP path that answers 200 once it may be used; empty: it listens.
        ends: Whether it may end by itself: exit code 0 then means that it is done.
    """

    name: str
    kind: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    port: int = 0
    ready_path: str = ""
    ends: bool = False

    @property
    def address(self) -> str:
        """Its base address; empty if it does not listen."""
        return f"http://{LOOPBACK}:{self.port}" if self.port else ""


def listening(options: Options) -> list[str]:
    """Return the names of the parts that listen, in order."""
    return [*_named("engine", options.engines), *(MOCKS if options.mocks else ())]


def plan(
    options: Options,
    place: Place,
    ports: Mapping[str, int],
    reach: Reach,
    environ: Mapping[str, str],
) -> list[Part]:
    """Return the parts of the cluster.

    Args:
        options: How many of what.
        place: Where logs and evidence go.
        ports: A port for every name of `listening`.
        reach: Addresses of "postgres", "broker" (empty: embedded), "valkey", "mock-token", and of
            everything in `listening`, as each part is to see them.
        environ: The environment of whoever starts the cluster: settings in it that are not about
            addresses and names reach every part.
    """
    base = environment_of({k: v for k, v in environ.items() if k not in _NOT_OURS})
    engines = _named("engine", options.engines)
    found = [
        _engine(name, ports, reach, {**base, **_clock_of(name, place, environ)}, engines)
        for name in engines
    ]
    if options.mocks:
        found += [_mock(name, ports[name], reach, base, engines) for name in MOCKS]
    found += [
        _worker(name, options, ports, reach, base) for name in _named("worker", options.workers)
    ]
    if options.load_rate > 0:
        found.append(_load(options, place, reach, base, engines))
    if options.chaos:
        found.append(_chaos(options, place, base))
    return found


def _engine(
    name: str,
    ports: Mapping[str, int],
    reach: Reach,
    base: Mapping[str, str],
    engines: Sequence[str],
) -> Part:
    port = ports[name]
    others = [one for one in engines if one != name]
    settings = {
        **_broker(name, reach),
        "ODIN_POSTGRES_DSN": reach(name, "postgres"),
        "ODIN_VALKEY_URL": reach(name, "valkey"),
        "ODIN_NODE_ID": name,
        "ODIN_HTTP_HOST": LOOPBACK,
        "ODIN_HTTP_PORT": str(port),
        "ODIN_ENGINE_ROUTES": _routes(name, others, ports, reach),
    }
    return Part(
        name=name,
        kind="engine",
        command=command_of("engine"),
        environ={**base, **settings},
        port=port,
        ready_path="/v1/ready",
    )


def _clock_of(name: str, place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what lets an engine's wall clock be stepped, if ODIN_FAKETIME names libfaketime.

    Spans stay true: odin measures them with clocks that the library is told to leave alone.
    """
    library = environ.get("ODIN_FAKETIME")
    if not library:
        return {}
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(place.folder / "faketime" / name),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "1",
    }


def _mock(
    name: str, port: int, reach: Reach, base: Mapping[str, str], engines: Sequence[str]
) -> Part:
    settings = {
        "ODIN_POSTGRES_DSN": reach(name, "postgres"),
        "ODIN_MOCK_PORT": str(port),
        "ODIN_MOCK_ADMIN_TOKEN": reach(name, "mock-token"),
        "ODIN_MOCK_ENGINES": ",".join(reach(name, engine) for engine in engines),
    }
    if token := base.get("ODIN_API_TOKEN"):
        settings["ODIN_MOCK_ENGINE_TOKEN"] = token
    command = command_of("mocks", name)
    return Part(name=name, kind="mock", command=command, environ={**base, **settings}, port=port)


def _worker(
    name: str,
    options: Options,
    ports: Mapping[str, int],
    reach: Reach,
    base: Mapping[str, str],
) -> Part:
    engines = _named("engine", options.engines)
    settings = {
        **_broker(name, reach),
        "ODIN_VALKEY_URL": reach(name, "valkey"),
        "ODIN_ENGINES": ",".join(reach(name, engine) for engine in engines),
        "ODIN_WORKER_ID": name,
        "ODIN_WORKER_ROUTES": _routes(name, engines, ports, reach),
    }
    for mock in MOCKS:
        variable = f"ODIN_{mock.upper()}_URL"
        if options.mocks:
            settings[variable] = reach(name, mock)
        else:  # somebody else's, or nobody: a worker of other workflows does not ask for them
            settings[variable] = base.get(variable) or f"http://{LOOPBACK}:1"
    command = command_of("worker")
    return Part(name=name, kind="worker", command=command, environ={**base, **settings})


def _load(
    options: Options,
    place: Place,
    reach: Reach,
    base: Mapping[str, str],
    engines: Sequence[str],
) -> Part:
    settings = {
        "ODIN_ENGINES": ",".join(reach("load", engine) for engine in engines),
        "ODIN_LOAD_RATE": str(options.load_rate),
        "ODIN_DEMO_SECONDS": str(options.seconds),
        "ODIN_CLIENT_LOG": str(place.client_log),
        "ODIN_LOAD_OBSERVE_EVERY": base.get("ODIN_LOAD_OBSERVE_EVERY") or "10",
        "ODIN_POSTGRES_DSN": reach("load", "postgres"),
    }
    return Part(
        name="load",
        kind="load",
        command=[sys.executable, "-P", "-m", f"{module_of('cluster')}.load"],
        environ={**base, **settings},
        ends=options.seconds > 0,
    )


def _chaos(options: Options, place: Place, base: Mapping[str, str]) -> Part:
    """Return the schedule of experiments: it finds everything in the cluster's own files."""
    settings = {"ODIN_FOLDER": str(place.folder), "ODIN_DEMO_SECONDS": str(options.seconds)}
    return Part("chaos", "chaos", command_of("chaos"), {**base, **settings})


def _broker(name: str, reach: Reach) -> dict[str, str]:
    url = reach(name, "broker")
    if not url:
        return {"ODIN_BROKER": "embedded", "ODIN_AMQP_URL": ""}
    return {"ODIN_BROKER": "rabbitmq", "ODIN_AMQP_URL": url}


def _routes(name: str, engines: Sequence[str], ports: Mapping[str, int], reach: Reach) -> str:
    """Return how the part translates the addresses that engines tell of themselves."""
    told = {f"http://{LOOPBACK}:{ports[engine]}": reach(name, engine) for engine in engines}
    return ",".join(
        f"{address}={dialled}" for address, dialled in told.items() if address != dialled
    )


def _named(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(1, count + 1)]
