"""What a local cluster is made of, as the command line and the environment say it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from odin.errors import InvalidArgumentError
from odin.runtime.settings import Settings

PARTS_MAX = 50


class DemoSettings(Settings):
    """What `make demo` reads from the environment.

    Attributes:
        demo_seconds: ODIN_DEMO_SECONDS, after how long the load ends and is verified; 0: never.
        load_rate: ODIN_LOAD_RATE, orders per second.
        proxies: ODIN_PROXIES, whether a proxy stands in every link.
        chaos: ODIN_CHAOS, whether an experiment breaks something every ten minutes.
    """

    demo_seconds: float = Field(default=0.0, ge=0, le=86_400)
    load_rate: float = Field(default=5.0, gt=0, le=1_000)
    proxies: bool = False
    chaos: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """How many of what.

    Attributes:
        engines: Engines.
        workers: Workers.
        load_rate: Orders per second of the synthetic load; 0 for none.
        mocks: Whether the mock services run.
        seconds: After how long the load ends by itself; 0: when it is told to.
        proxies: Whether a proxy stands in every link, so that links can be broken on purpose.
        chaos: Whether experiments break something on a schedule.
    """

    engines: int = 3
    workers: int = 3
    load_rate: float = 0.0
    mocks: bool = True
    seconds: float = 0.0
    proxies: bool = False
    chaos: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot run.

        Raises:
            InvalidArgumentError: a number is out of range.
        """
        if not 1 <= self.engines <= PARTS_MAX:
            raise InvalidArgumentError(f"--engines is 1 to {PARTS_MAX}, got {self.engines}")
        if not 0 <= self.workers <= PARTS_MAX:
            raise InvalidArgumentError(f"--workers is 0 to {PARTS_MAX}, got {self.workers}")
        if not 0 <= self.load_rate <= 1_000:  # noqa: PLR2004 - the bound of the load's own setting
            raise InvalidArgumentError(f"--load is 0 to 1000 a second, got {self.load_rate}")
