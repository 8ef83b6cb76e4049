"""Every fault by its name, and what a cluster must have for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from odin.errors import InvalidArgumentError

from .clocks import StepClock, faketime_file
from .links import (
    CUTS,
    SWIZZLE_LINKS,
    SWIZZLE_SECONDS,
    Cut,
    CutAfterCommit,
    PauseInCommit,
    Swizzle,
)
from .mocks import Misbehave
from .moments import has_unconfirmed, runs_activities
from .processes import RUNS_SECONDS, STANDS_SECONDS, Kill, Pause, Roll, Starve
from .servers import Alarm, Backends, FullDisk, is_disk_small
from .work import BURST_PER_SECOND, Burst, Poison

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base import Fault
    from .stage import Stage

SLOW_MS: Final = 300
SLOWER_SECONDS: Final = 0.3
LATE_MS: Final = 2_000
# What of a fault is neither drawn nor in its name. It goes into the record of each experiment, so
# that one that is run again is the same, or refused.
PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "burst": {"per_second": BURST_PER_SECOND},
    "cut after commit": {"cuts": CUTS},
    "failing payments": {"kind": "failing", "probability": 0.5},
    "forgetful payments": {"kind": "forgetful", "probability": 0.5},
    "resetting payments": {"kind": "reset", "probability": 0.5},
    "slow payments": {"kind": "slow", "delay_ms": LATE_MS},
    "slow postgres": {"delay_ms": SLOW_MS / 2, "jitter_ms": SLOW_MS / 4},
    "starve engine": {"runs_seconds": RUNS_SECONDS, "stands_seconds": STANDS_SECONDS},
    "swizzle": {"links_max": SWIZZLE_LINKS, "every_seconds": SWIZZLE_SECONDS},
}


def _cut(stage: Stage, part: str, *, to: str, direction: str = "both") -> Cut:
    fault = stage.levers.link_fault(mode="blackhole", direction=direction)
    return Cut(stage, part, fault, to=to)


def _slow(stage: Stage) -> Cut:
    # Each way half, so that a round trip is later by the whole, and by up to as much again.
    fault = stage.levers.link_fault(mode="delay", **PARAMETERS["slow postgres"])
    stage.everyone("engine")
    return Cut(stage, "engines", fault, to="postgres", slower_seconds=SLOWER_SECONDS)


FAULTS: Final[dict[str, Callable[[Stage], Fault]]] = {
    "alarm": Alarm,
    "burst": Burst,
    "cut after commit": lambda stage: CutAfterCommit(stage, stage.victim("engine")),
    "cut engine from postgres": lambda stage: _cut(stage, stage.victim("engine"), to="postgres"),
    "cut worker from broker": lambda stage: _cut(stage, stage.victim("worker"), to="rabbitmq"),
    "cut worker from engines": lambda stage: _cut(stage, stage.victim("worker"), to="engines"),
    "failing payments": lambda stage: Misbehave(stage, **PARAMETERS["failing payments"]),
    "fill disk": FullDisk,
    "forgetful payments": lambda stage: Misbehave(stage, **PARAMETERS["forgetful payments"]),
    "half-open postgres": lambda stage: _cut(
        stage, stage.victim("engine"), to="postgres", direction="down"
    ),
    "kill all engines": lambda stage: Kill(stage, stage.everyone("engine")),
    "kill broker": lambda stage: Kill(stage, ["rabbitmq"]),
    "kill engine": lambda stage: Kill(stage, [stage.victim("engine")]),
    "kill postgres": lambda stage: Kill(stage, ["postgres"]),
    "kill relay": lambda stage: Kill(stage, [stage.victim("engine")], has_unconfirmed),
    "kill worker": lambda stage: Kill(stage, [stage.victim("worker")], runs_activities),
    "lose confirms": lambda stage: _cut(
        stage, stage.victim("engine"), to="rabbitmq", direction="down"
    ),
    "pause engine": lambda stage: Pause(stage, [stage.victim("engine")]),
    "pause engine in commit": lambda stage: PauseInCommit(stage, stage.victim("engine")),
    "pause valkey": lambda stage: Pause(stage, ["valkey"]),
    "poison": Poison,
    "resetting payments": lambda stage: Misbehave(stage, **PARAMETERS["resetting payments"]),
    "roll": lambda stage: Roll(stage, [*stage.everyone("engine"), *stage.everyone("worker")]),
    "slow payments": lambda stage: Misbehave(stage, **PARAMETERS["slow payments"]),
    "slow postgres": _slow,
    "starve engine": lambda stage: Starve(stage, stage.victim("engine")),
    "step clock": lambda stage: StepClock(stage, stage.victim("engine")),
    "swizzle": Swizzle,
    "terminate backends": Backends,
}


def fault_of(
    name: str, stage: Stage, faults: Mapping[str, Callable[[Stage], Fault]] = FAULTS
) -> Fault:
    """Return a fault, not yet prepared.

    Raises:
        InvalidArgumentError: there is none of this name.
    """
    make = faults.get(name)
    if make is None:
        raise InvalidArgumentError(f"there is no fault {name!r}")
    return make(stage)


def parameters_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the parameters of faults as they are now, by the name of the fault."""
    return {name: PARAMETERS.get(name, {}) for name in names}


def lacking(needs: frozenset[str], stage: Stage) -> list[str]:
    """Return what a cluster lacks for an experiment, each with what to do about it.

    Raises:
        NoClusterError: no cluster runs.
    """
    kinds = {one.kind for one in stage.state.parts}
    names = {one.name for one in stage.state.parts}
    has: dict[str, Callable[[], bool]] = {
        "proxies": lambda: "proxy" in kinds,
        "rabbitmq": lambda: "rabbitmq" in names,
        "mocks": lambda: "mock" in kinds,
        "faketime": lambda: any(faketime_file(stage, one) for one in stage.names("engine")),
        "small disk": lambda: is_disk_small(stage),
    }
    return [_ADVICE[need] for need in sorted(needs) if not has[need]()]


_ADVICE: Final = {
    "proxies": "links can be broken only with proxies: `odin up --proxies`",
    "rabbitmq": "the cluster has no RabbitMQ of its own",
    "mocks": "the cluster has no mock services",
    "faketime": "engines run without libfaketime: ODIN_FAKETIME names the library for `odin up`",
    "small disk": "Postgres's data has no small file system of its own: mount a tmpfs there",
}
