"""Every fault by its name, and what a cluster must have for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odin.errors import InvalidArgumentError

from .clocks import StepClock, faketime_file
from .links import Cut, CutAfterCommit, PauseInCommit, Swizzle
from .mocks import Misbehave
from .moments import has_unconfirmed, runs_activities
from .processes import Kill, Pause, Roll, Starve
from .servers import Alarm, Backends, FullDisk, is_disk_small
from .work import Burst, Poison

if TYPE_CHECKING:
    from .base import Fault
    from .stage import Stage

SLOW_MS: Final = 300
SLOWER_SECONDS: Final = 0.3
LATE_MS: Final = 2_000


def _cut(stage: Stage, part: str, *, to: str, direction: str = "both") -> Cut:
    fault = stage.levers.link_fault(mode="blackhole", direction=direction)
    return Cut(stage, part, fault, to=to)


def _slow(stage: Stage) -> Cut:
    # Each way half, so that a round trip is later by the whole, and by up to as much again.
    half = SLOW_MS / 2
    fault = stage.levers.link_fault(mode="delay", delay_ms=half, jitter_ms=half / 2)
    stage.everyone("engine")
    return Cut(stage, "engines", fault, to="postgres", slower_seconds=SLOWER_SECONDS)


FAULTS: Final[dict[str, Callable[[Stage], Fault]]] = {
    "alarm": Alarm,
    "burst": Burst,
    "cut after commit": lambda stage: CutAfterCommit(stage, stage.victim("engine")),
    "cut engine from postgres": lambda stage: _cut(stage, stage.victim("engine"), to="postgres"),
    "cut worker from broker": lambda stage: _cut(stage, stage.victim("worker"), to="rabbitmq"),
    "cut worker from engines": lambda stage: _cut(stage, stage.victim("worker"), to="engines"),
    "failing payments": lambda stage: Misbehave(stage, "failing", probability=0.5),
    "fill disk": FullDisk,
    "forgetful payments": lambda stage: Misbehave(stage, "forgetful", probability=0.5),
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
    "resetting payments": lambda stage: Misbehave(stage, "reset", probability=0.5),
    "roll": lambda stage: Roll(stage, [*stage.everyone("engine"), *stage.everyone("worker")]),
    "slow payments": lambda stage: Misbehave(stage, "slow", delay_ms=LATE_MS),
    "slow postgres": _slow,
    "starve engine": lambda stage: Starve(stage, stage.victim("engine")),
    "step clock": lambda stage: StepClock(stage, stage.victim("engine")),
    "swizzle": Swizzle,
    "terminate backends": Backends,
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
