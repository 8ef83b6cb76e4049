# ruff: noqa: ANN401, TRY300 - results of workflows have any type

from __future__ import annotations

from typing import Any

import pytest

from odin import workflow
from odin.core import commands as c
from odin.core import events as e
from odin.core.definition import WorkflowDefinition
from odin.core.failures import NondeterminismError
from odin.core.matching import _COMMAND_KEYS, _EVENT_KEYS, COMMAND_EVENTS, fits, mismatch
from odin.core.payload import Failure, encode
from tests.core.replay_owner import START_US, Owner

DONE = encode(None)
PAIRS: list[tuple[c.Command, e.Event]] = [
    (
        c.ScheduleActivity(command_id=1, activity_id="1", activity_type="a", task_queue="q"),
        e.ActivityTaskScheduled(command_id=1, activity_id="1", activity_type="a", task_queue="q"),
    ),
    (
        c.ScheduleActivity(command_id=1, activity_id="x", activity_type="a", task_queue="q"),
        e.ActivityTaskScheduled(command_id=1, activity_id="x", activity_type="a", task_queue="q"),
    ),
    (c.RequestCancelActivity(command_id=1), e.ActivityTaskCancelRequested(command_id=1)),
    (
        c.StartTimer(command_id=1, duration_ms=5),
        e.TimerStarted(command_id=1, duration_ms=5, fires_at_us=7),
    ),
    (
        c.StartTimer(command_id=2, duration_ms=5),
        e.TimerStarted(command_id=2, duration_ms=5, fires_at_us=7),
    ),
    (c.CancelTimer(command_id=1), e.TimerCanceled(command_id=1)),
    (c.CompleteWorkflow(result=DONE), e.WorkflowExecutionCompleted(result=DONE)),
    (c.FailWorkflow(failure=Failure("x")), e.WorkflowExecutionFailed(failure=Failure("y"))),
    (c.CancelWorkflow(), e.WorkflowExecutionCanceled()),
    (
        c.ContinueAsNew(),
        e.WorkflowExecutionContinuedAsNew(new_run_id="r", workflow_type="w", task_queue="q"),
    ),
]


def test_a_command_fits_its_own_event_and_no_other() -> None:
    for at, (command, _) in enumerate(PAIRS):
        assert [fits(command, event) for _, event in PAIRS] == [
            at == other for other in range(len(PAIRS))
        ]


def test_every_command_has_exactly_one_kind_of_event() -> None:
    assert set(_COMMAND_KEYS) == set(c.Command.__args__)
    assert len(_COMMAND_KEYS) == len(_EVENT_KEYS)
    assert frozenset(type(event) for _, event in PAIRS) == COMMAND_EVENTS


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (0, "activity 1 'a'"),
        (1, "activity 1 'a' (id 'x')"),
        (2, "cancellation of activity 1"),
        (3, "timer 1 of 5 ms"),
        (6, "the completion of the workflow"),
        (9, "the continue-as-new"),
    ],
)
def test_a_mismatch_shows_both_sides_in_words(index: int, text: str) -> None:
    command, event = PAIRS[index]
    error = mismatch("run-1", 9, event, None, "orders.py:7")
    assert (
        f"run run-1, event 9: the history has {text}, the code asks for nothing at orders.py:7."
        in str(error)
    )
    assert error.failure.source == "orders.py:7"
    error = mismatch("run-1", 9, None, command, "")
    assert f"the history has no further command, the code asks for {text}." in str(error)


async def original() -> None:
    await workflow.execute_activity("charge")
    await workflow.sleep(1)


async def swapped() -> None:
    await workflow.sleep(1)
    await workflow.execute_activity("charge")


async def renamed() -> None:
    await workflow.execute_activity("bill")


async def shorter() -> None:
    await workflow.execute_activity("charge")


async def longer() -> None:
    _ = workflow.start_activity("charge")
    await workflow.execute_activity("audit")


async def quiet() -> None:
    await workflow.wait_condition(lambda: False)


async def failing() -> None:
    await workflow.execute_activity("charge")
    raise KeyError("new bug")


def replayed(changed: Any, *, steps: int = 2) -> Any:
    owner = Owner(workflow.defn(name="flow")(original))
    owner.step()
    if steps > 1:
        owner.complete(1)
        owner.step()
    owner.definition = WorkflowDefinition.of(workflow.defn(name="flow")(changed))
    instance = owner.cold()
    try:
        instance.apply(owner.history)
        failure = instance.run_task(START_US).failure
        assert failure is not None
        return failure
    except NondeterminismError as error:
        return error.failure
    finally:
        instance.evict()


@pytest.mark.parametrize(
    ("changed", "steps", "text"),
    [
        (
            swapped,
            2,
            "event 3: the history has activity 1 'charge', the code asks for timer 1 of 1000 ms",
        ),
        (
            renamed,
            2,
            "event 3: the history has activity 1 'charge', the code asks for activity 1 'bill'",
        ),
        (
            shorter,
            2,
            "event 6: the history has timer 2 of 1000 ms, the code asks for the completion of",
        ),
        (
            longer,
            2,
            "event 4: the history has no further command, the code asks for activity 2 'audit'",
        ),
        (
            longer,
            1,
            "event 4: the history has no further command, the code asks for activity 2 'audit'",
        ),
        (quiet, 2, "event 3: the history has activity 1 'charge', the code asks for nothing"),
    ],
)
def test_changed_code_is_found_at_the_event_where_it_parts(
    changed: Any, steps: int, text: str
) -> None:
    failure = replayed(changed, steps=steps)
    assert failure.type == "NondeterminismError"
    assert text in failure.message
    assert "test_matching.py:" in failure.source


def test_a_new_bug_met_at_replay_fails_the_task_with_its_line() -> None:
    owner = Owner(workflow.defn(name="flow")(original))
    owner.step()
    owner.complete(1)
    owner.step()
    owner.definition = WorkflowDefinition.of(workflow.defn(name="flow")(failing))
    instance = owner.cold()
    with pytest.raises(Exception, match="new bug") as caught:
        instance.apply(owner.history)
    assert "test_matching.py:" in caught.value.failure.source  # type: ignore[attr-defined] # a WorkflowTaskError has it
