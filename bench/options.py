"""What is to be measured, as the command line says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odin.errors import InvalidArgumentError

from .workloads import Workload

BROKERS: Final = ("rabbitmq", "embedded")
PROCESSES_MAX: Final = 50
ROUNDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Options:
    """One benchmark.

    Attributes:
        workloads: What is run.
        rounds: How often each.
        engines: Engines of the cluster that is started.
        workers: Its workers.
        broker: "rabbitmq" or "embedded".
        address: A cluster that runs already, instead; nothing is started then.
        task_queue: Which workers of that cluster take part.
        api_key: Its token.
    """

    workloads: Sequence[Workload]
    rounds: int = 1
    engines: int = 1
    workers: int = 1
    broker: str = "rabbitmq"
    address: str = ""
    task_queue: str = "default"
    api_key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run.

        Raises:
            InvalidArgumentError: A number is out of range, or there is no such broker.
        """
        for name, value in (("--engines", self.engines), ("--workers", self.workers)):
            if not 1 <= value <= PROCESSES_MAX:
                raise InvalidArgumentError(f"{name} is 1 to {PROCESSES_MAX}, got {value}")
        if not 1 <= self.rounds <= ROUNDS_MAX:
            raise InvalidArgumentError(f"--runs is 1 to {ROUNDS_MAX}, got {self.rounds}")
        if self.broker not in BROKERS:
            raise InvalidArgumentError(f"--broker is {' or '.join(BROKERS)}, got {self.broker!r}")
