"""What can be done to one kind of cluster: its faults, its experiments, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .faults.catalogue import FAULTS, lacking
from .scenarios import SCENARIOS

if TYPE_CHECKING:
    from .faults.base import Fault
    from .faults.stage import Stage
    from .plan import Scenario


@dataclass(frozen=True, slots=True)
class Kit:
    """What can be done to one kind of cluster.

    Attributes:
        faults: Every fault by its name.
        scenarios: Every experiment, those that cannot be run too.
        lacking: (experiment, cluster) → why it cannot be run there.
    """

    faults: Mapping[str, Callable[[Stage], Fault]]
    scenarios: Sequence[Scenario]
    lacking: Callable[[Scenario, Stage], list[str]]


LOCAL: Final = Kit(FAULTS, SCENARIOS, lambda scenario, stage: lacking(scenario.needs, stage))
