"""What can be done to odin in containers by the Docker API, and what cannot, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .faults.catalogue import FAULTS
from .faults.containers import CutContainers, KillContainers, PauseContainers, RollContainers
from .kit import Kit
from .plan import Scenario
from .scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .faults.base import Fault
    from .faults.compose_levers import ComposeLevers
    from .faults.stage import Stage

# These need nothing but the API and the broker's address.
SHARED: Final = ("burst", "poison")
MOCKS: Final = "needs the admin route of a local cluster's mocks, which is open to loopback alone"
PROXIES: Final = "needs the proxies of a local cluster"
# Fault → what it needs that containers do not give.
REFUSED: Final[dict[str, str]] = {
    "alarm": "needs rabbitmqctl of a local cluster's RabbitMQ",
    "cut after commit": PROXIES,
    "cut engine from postgres": f"{PROXIES}; cut-engine-node cuts it from everything",
    "cut worker from broker": PROXIES,
    "cut worker from engines": PROXIES,
    "failing payments": MOCKS,
    "fill disk": "needs the files of a local cluster's Postgres",
    "forgetful payments": MOCKS,
    "half-open postgres": PROXIES,
    "kill relay": PROXIES,
    # Activities of a few milliseconds are under way too seldom to wait for one.
    "kill worker": f"{MOCKS}; kill-worker kills one at any moment",
    "lose confirms": PROXIES,
    "pause engine in commit": PROXIES,
    "resetting payments": MOCKS,
    "slow payments": MOCKS,
    "slow postgres": PROXIES,
    "starve engine": "needs signals to the processes of a local cluster",
    "step clock": "needs libfaketime in the engines of a local cluster",
    "swizzle": PROXIES,
    "terminate backends": "needs the lever `odin break disconnect` of a local cluster",
}
CUT: Final = Scenario(
    name="cut-engine-node",
    number=4,
    title="An engine is taken out of the network",
    hypothesis="It stops answering, others take its shards, and no start is lost.",
    faults=("cut engine",),
    hold_seconds=15.0,
    expects=("takeover",),
)
KILL_WORKER: Final = Scenario(
    name="kill-worker",
    number=13,
    title="A worker is killed, at any moment",
    hypothesis="Lost attempts are tried elsewhere, and no order is charged twice.",
    faults=("kill a worker",),
    hold_seconds=10.0,
)
COMPOSE_SCENARIOS: Final[tuple[Scenario, ...]] = (*SCENARIOS, CUT, KILL_WORKER)


def compose_faults(levers: ComposeLevers) -> dict[str, Callable[[Stage], Fault]]:
    """Return the faults of a compose project by their names, the same as a local cluster's."""

    def kill(stage: Stage, names: Sequence[str], *, is_brief: bool = False) -> KillContainers:
        return KillContainers(levers, stage, names, is_brief=is_brief)

    return {
        **{name: FAULTS[name] for name in SHARED},
        "cut engine": lambda stage: CutContainers(levers, stage, [stage.victim("engine")]),
        # Nothing serves meanwhile: they come back at once, as under a supervisor.
        "kill all engines": lambda stage: kill(stage, stage.everyone("engine"), is_brief=True),
        "kill postgres": lambda stage: kill(stage, ["postgres"], is_brief=True),
        "kill broker": lambda stage: kill(stage, ["rabbitmq"]),
        "kill engine": lambda stage: kill(stage, [stage.victim("engine")]),
        "kill a worker": lambda stage: kill(stage, [stage.victim("worker")]),
        "pause engine": lambda stage: PauseContainers(levers, stage, [stage.victim("engine")]),
        "pause valkey": lambda stage: PauseContainers(levers, stage, ["valkey"]),
        "roll": lambda stage: RollContainers(
            levers, stage, [*stage.everyone("engine"), *stage.everyone("worker")]
        ),
    }


def refusals(scenario: Scenario) -> list[str]:
    """Return why an experiment cannot be run in containers at all; empty if it can."""
    reasons = {REFUSED[name] for name in scenario.faults if name in REFUSED}
    return sorted(one for one in reasons if not any(one in more for more in reasons - {one}))


def missing(scenario: Scenario, stage: Stage) -> list[str]:
    """Return why an experiment cannot be run in this project."""
    there = {*stage.names("server"), *(["mocks"] if stage.names("mock") else [])}
    wanted = {"rabbitmq", "mocks"} & scenario.needs
    lacks = [f"the project has no {one}" for one in sorted(wanted - there)]
    return [*refusals(scenario), *lacks]


def compose_kit(levers: ComposeLevers) -> Kit:
    """Return what can be done to a compose project."""
    return Kit(compose_faults(levers), COMPOSE_SCENARIOS, missing)
