"""The workloads, as data. Their workflows are hosted by the worker service (`worker/bench.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from odin.errors import InvalidArgumentError

PAYLOAD_BYTES: Final = 200
PAYLOAD: Final = "x" * (PAYLOAD_BYTES - 2)  # as JSON, with its quotes, it is 200 bytes
LONG_RUN_STEPS_MIN: Final = 400


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run, how often, and how many at once.

    Attributes:
        name: "W1" and so on.
        title: One line for people.
        workflow: The workflow type. It takes `steps` and a payload, and returns how many of its
            steps gave back exactly what they were given.
        steps: Activities per workflow.
        count: Workflows that are measured.
        in_flight: How many of them are open at any moment.
        warmup_count: Workflows before that, not measured.
    """

    name: str
    title: str
    workflow: str
    steps: int
    count: int
    in_flight: int
    warmup_count: int

    @property
    def shows_growth(self) -> bool:
        """Whether a workflow is long enough to compare its first steps with its last."""
        return self.steps >= LONG_RUN_STEPS_MIN


ALL: Final[dict[str, Workload]] = {
    one.name: one
    for one in (
        Workload("W1", "5 steps in sequence, 64 in flight", "bench_steps", 5, 2_000, 64, 300),
        Workload("W2", "1 step, 64 in flight", "bench_steps", 1, 2_000, 64, 300),
        Workload("W3", "100 steps in parallel, 8 in flight", "bench_fan", 100, 50, 8, 10),
        Workload("W4", "5 steps in sequence, one at a time", "bench_steps", 5, 200, 1, 20),
        Workload("W5", "one workflow of 2000 steps", "bench_steps", 2_000, 1, 1, 1),
    )
}


def chosen(names: Sequence[str], count: int | None = None) -> list[Workload]:
    """Return workloads by name, in the order of `ALL`.

    Args:
        names: Names in any case; empty: all.
        count: Workflows to measure in each, instead of the standard; for a quick look.

    Raises:
        InvalidArgumentError: There is no such workload, or the count is below 1.
    """
    wanted = {name.upper() for name in names} or set(ALL)
    if unknown := wanted - set(ALL):
        raise InvalidArgumentError(
            f"no workload {', '.join(sorted(unknown))}: there are {', '.join(ALL)}"
        )
    found = [one for name, one in ALL.items() if name in wanted]
    return found if count is None else [scaled(one, count) for one in found]


def scaled(workload: Workload, count: int) -> Workload:
    """Return the workload with another number of workflows, and no more warm-up than that.

    Raises:
        InvalidArgumentError: The count is below 1.
    """
    if count < 1:
        raise InvalidArgumentError(f"a workload has at least 1 workflow, got {count}")
    return replace(workload, count=count, warmup_count=min(count, workload.warmup_count))
