"""What a decision costs. The bound is far above the goal of 30 µs: it catches another order of
magnitude, not a busy machine. `--junit-xml` keeps the figures."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest

from odin.core import requests as q
from odin.core import wire
from odin.core.decide_activity import decide_activity_report, decide_claim
from odin.core.decide_client import NewRun, decide_signal, decide_start
from odin.core.decide_workflow import decide_report
from odin.core.payload import encode
from tests.core.decide_world import HASH, World, activity

ROUNDS, CALLS = 20, 100
BOUND_US = 300


def calls() -> dict[str, Callable[[], object]]:
    """Return one call of each decision of a plain step."""
    begun, waiting, running = World(), World().with_activity(), World().with_activity()
    begun.start()
    running.claim()
    moment, grant = begun.moment(), begun.grant()
    new = NewRun(begun.run_id(9), 3, 7)
    start = q.StartWorkflow(
        workflow_id="order-1", workflow_type="order", request_id="r", input=(encode(1),)
    )
    signal = q.SignalWorkflow(workflow_id="order-1", name="go", request_id="r")
    report = wire.ReportWorkflowTask(
        seq=1,
        report_id="r",
        shard_id=3,
        run_id=begun.latest,
        number=grant.number,
        task_token=grant.task_token,
        seen=grant.seen,
        time_us=grant.time_us,
        commands=(activity(1),),
    )
    result = wire.ActivityOutcome("completed", encode(1))
    late = waiting.moment()
    return {
        "start": lambda: decide_start(None, start, new, moment, HASH),
        "signal": lambda: decide_signal(running.run, signal, late, HASH),
        "report": lambda: decide_report(begun.run, report, "w1", "build-1", moment, new),
        "claim": lambda: decide_claim(waiting.run, 1, 1, "c1", "w1", late),
        "result": lambda: decide_activity_report(running.run, 1, "c1", result, late),
    }


@pytest.mark.parametrize("name", ["start", "signal", "report", "claim", "result"])
def test_a_decision_costs_microseconds(name: str, record_property: Callable[..., None]) -> None:
    call = calls()[name]
    best = min(_once(call) for _ in range(ROUNDS))
    record_property("microseconds", round(best, 1))
    assert best < BOUND_US, f"{name}: {best:.1f} µs"


def _once(call: Callable[[], object]) -> float:
    began = perf_counter()
    for _ in range(CALLS):
        call()
    return (perf_counter() - began) / CALLS * 1_000_000
