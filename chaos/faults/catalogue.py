"""Every fault by its name, and what a cluster must have for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odin.errors import InvalidArgumentError

from .processes import Kill, Pause, Roll, Starve

if TYPE_CHECKING:
    from .base import Fault
    from .stage import Stage

FAULTS: Final[dict[str, Callable[[Stage], Fault]]] = {
    "kill engine": lambda stage: Kill(stage, [stage.victim("engine")]),
    "kill all engines": lambda stage: Kill(stage, stage.names("engine")),
    "kill postgres": lambda stage: Kill(stage, ["postgres"]),
    "kill broker": lambda stage: Kill(stage, ["rabbitmq"]),
    "pause engine": lambda stage: Pause(stage, [stage.victim("engine")]),
    "pause valkey": lambda stage: Pause(stage, ["valkey"]),
    "starve engine": lambda stage: Starve(stage, stage.victim("engine")),
    "roll": lambda stage: Roll(stage, [*stage.names("engine"), *stage.names("worker")]),
}


def fault_of(name: str, stage: Stage) -> Fault:
    """Return a fault, not yet prepared.

    Raises:
        InvalidArgumentError: there is none of this name.
    """
    make = FAULTS.get(name)
    if make is None:
        raise InvalidArgumentError(f"there is no fault {name!r}")
    return make(stage)


def lacking(needs: frozenset[str], stage: Stage) -> list[str]:
    """Return what a cluster lacks for an experiment, each with what to do about it.

    Raises:
        NoClusterError: no cluster runs.
    """
    kinds = {one.kind for one in stage.state.parts}
    names = {one.name for one in stage.state.parts}
    has = {
        "proxies": "proxy" in kinds,
        "rabbitmq": "rabbitmq" in names,
        "mocks": "mock" in kinds,
        "faketime": False,
        "small disk": False,
    }
    return [_ADVICE[need] for need in sorted(needs) if not has[need]]


_ADVICE: Final = {
    "proxies": "links can be broken only with proxies: `odin up --proxies`",
    "rabbitmq": "the cluster has no RabbitMQ of its own",
    "mocks": "the cluster has no mock services",
    "faketime": "libfaketime is not installed (Debian: faketime)",
    "small disk": "Postgres's data lies on the disk of this machine",
}
