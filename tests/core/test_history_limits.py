"""At the limit of its history a run is neither lost nor ended: it can close, and be closed."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from odin.core import commands as c
from odin.core.history_limits import HistoryLimits
from odin.core.payload import Failure
from odin.errors import FailedPreconditionError
from tests.core.decide_world import World, activity, complete, timer

CLOSING: tuple[c.Command, ...] = (
    complete(),
    c.FailWorkflow(failure=Failure("no")),
    c.ContinueAsNew(),
)


FULL = HistoryLimits(events_max=1)


def full(limits: HistoryLimits = FULL) -> World:
    """Return a world whose only run has a full history and a workflow task."""
    world = World()
    world.start()
    world.limits = limits
    return world


@pytest.mark.parametrize(
    "world",
    [
        full(),
        full(HistoryLimits(bytes_max=1)),
        full(HistoryLimits(events_max=3)),
    ],
    ids=["events", "bytes", "almost"],
)
def test_a_task_that_goes_on_fails_and_says_what_to_do(world: World) -> None:
    outcome = world.report(activity(1), timer(2))
    assert outcome.refused == "failed"
    failure = world.run.workflow_task.last_failure
    assert failure is not None
    assert failure.type == "HistoryTooLong"
    assert "continue as new" in failure.message
    assert world.run.status == "running"
    assert world.run.workflow_task.state == "backoff"


@pytest.mark.parametrize("command", CLOSING, ids=lambda one: type(one).__name__)
def test_a_task_that_closes_the_run_is_accepted(command: c.Command) -> None:
    assert full().report(command).accepted is not None


def test_signals_are_refused_and_cancel_and_terminate_are_not() -> None:
    world = full()
    with pytest.raises(FailedPreconditionError) as refused:
        world.signal()
    assert refused.value.reason == "HISTORY_TOO_LONG"
    world.cancel()
    world.terminate()
    assert world.run.status == "terminated"


def test_one_event_below_the_limit_there_is_room_for_one_event() -> None:
    run = full().run
    limits = HistoryLimits(events_max=2)
    assert limits.why_full(run) is None
    assert limits.why_full(run, [timer(1)]) is not None


def test_a_warning_is_given_once_when_a_length_is_reached() -> None:
    limits = HistoryLimits(events_warned=10, bytes_warned=100)
    lengths = [(5, 50), (10, 60), (11, 70), (12, 100), (13, 101), (14, 500)]
    runs = [
        msgspec.structs.replace(full().run, next_event_id=events + 1, history_bytes=size)
        for events, size in lengths
    ]
    crossed = [limits.is_crossed(*pair) for pair in itertools.pairwise(runs)]
    assert crossed == [True, False, False, True, False]
