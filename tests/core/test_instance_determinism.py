# ruff: noqa: ANN401 - results of workflows have any type

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odin import workflow
from tests.core.replay_owner import Owner
from tests.core.replay_program import Machine

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 12


def test_every_construct_of_asyncio_runs_in_the_same_order_in_every_process() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.core.replay_program", "5"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={"PYTHONHASHSEED": "random", "PYTHONPATH": str(ROOT)},
        )
        for _ in range(PROCESSES)
    ]
    printed = {process.communicate(timeout=50)[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(printed) == 1
    lines, result, _ = json.loads(printed.pop())
    assert len(lines) > 40
    assert len(result) > 40


@workflow.defn
async def bounded(branches: int) -> None:
    async def one() -> None:
        async with asyncio.timeout(5):
            await workflow.execute_activity("a")

    async with asyncio.TaskGroup() as group:
        for _ in range(branches):
            group.create_task(one())


def test_bounded_branches_ask_in_an_order_that_no_version_of_python_changes() -> None:
    asked = [type(command).__name__ for command in Owner(bounded, 2).step()]
    # asyncio.wait_for would begin both timers first on Python 3.11, and this way only since 3.12.
    assert asked == ["StartTimer", "ScheduleActivity"] * 2


leaves = st.one_of(
    st.builds(lambda name: ["activity", name], st.sampled_from("abc")),
    st.builds(lambda ms: ["sleep", ms], st.integers(0, 9)),
    st.builds(lambda count: ["signals", count], st.integers(0, 2)),
    st.builds(lambda ms: ["take", ms], st.integers(1, 9)),
)


def combined(children: Any) -> Any:
    several = st.lists(children, min_size=1, max_size=3)
    timed = st.sampled_from(["within", "until", "shield"])
    return st.one_of(
        st.builds(
            lambda kind, steps: [kind, *steps],
            st.sampled_from(
                ["all", "group", "breaking_group", "race", "ordered", "completed", "steps"]
            ),
            several,
        ),
        st.builds(lambda kind, ms, step: [kind, ms, step], timed, st.integers(1, 9), children),
        st.builds(lambda step: ["locked", step], leaves),
    )


programs = st.recursive(leaves, combined, max_leaves=8)


class Arrivals:
    """Lets things happen to a run in an order that hypothesis draws."""

    def __init__(self, owner: Owner, data: st.DataObject) -> None:
        self.owner = owner
        self.draw = data.draw
        self.signals = 0
        self.cancelled = False

    def happen(self) -> None:
        owner = self.owner
        choices: list[Any] = [("complete", at) for at in sorted(owner.activities)]
        choices += [("fail", at) for at in sorted(owner.activities)]
        choices += [("fire", at) for at in sorted(owner.timers)]
        if self.signals < 4:
            choices += [("poke", self.signals), ("slow_poke", self.signals)]
        if not self.cancelled:
            choices.append(("cancel", 0))
        if not choices:
            choices = [("cancel", 0)]
        kind, at = self.draw(st.sampled_from(choices))
        if kind in {"poke", "slow_poke"}:
            self.signals += 1
            owner.signal(kind, at)
        elif kind == "cancel":
            self.cancelled = True
            owner.cancel()
        elif kind == "complete":
            if at in owner.waited and self.draw(st.booleans()):
                owner.end_canceled(at)
            else:
                owner.complete(at, at)
        else:
            getattr(owner, kind)(at)

    def happen_unless_closed(self) -> None:
        if self.owner.closing is None:
            self.happen()

    def run(self, tasks_max: int = 60) -> None:
        owner = self.owner
        while owner.closing is None and len(owner.outcomes) < tasks_max:
            outcome = owner.begin()
            for _ in range(self.draw(st.integers(0, 2))):
                self.happen()  # not seen by the task under way
            owner.accept(outcome)
            self.happen_unless_closed()


@settings(max_examples=150)
@given(program=programs, data=st.data())
def test_replay_of_any_program_gives_the_commands_of_every_task_again(
    program: list[Any], data: st.DataObject
) -> None:
    owner = Owner(Machine, program)
    Arrivals(owner, data).run()

    owner.check_every_task()
    cold = owner.check_replay()
    if owner.closing is None:
        owner.signal("poke", 99)
        warm_outcome = owner.begin()
        cold.apply(owner.missing(cold))
        assert cold.run_task(owner.now_us) == warm_outcome
    cold.evict()
    assert owner.warm is not None
    owner.warm.evict()


@settings(max_examples=40)
@given(program=programs, data=st.data())
def test_a_history_replayed_in_any_pieces_fits_as_the_whole_does(
    program: list[Any], data: st.DataObject
) -> None:
    owner = Owner(Machine, program)
    Arrivals(owner, data).run(tasks_max=20)
    instance = owner.cold()
    while left := owner.missing(instance):
        instance.apply(left[: data.draw(st.integers(1, len(left)))])
    assert instance.closed == (owner.closing is not None)
    instance.evict()
