"""One activity against a model of a dozen lines: who holds it, which attempt, and what is said."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from odin.core import events as e
from odin.core.backoff import RetryPolicySpec
from odin.core.payload import Failure, encode
from odin.core.wire import ActivityOutcome
from tests.core.decide_world import SECOND_US, World

TOKENS = st.sampled_from(["c1", "c2", "c3"])
OPERATIONS = st.one_of(
    st.tuples(st.just("claim"), TOKENS, st.sampled_from([0, 0, 0, 1, -1])),
    st.tuples(st.just("fail"), TOKENS, st.just(0)),
    st.tuples(st.just("fail"), TOKENS, st.just(0)),
    st.tuples(st.just("complete"), TOKENS, st.just(0)),
    st.tuples(st.just("retry"), TOKENS, st.just(0)),
    st.tuples(st.just("lose"), TOKENS, st.just(0)),
    st.tuples(st.just("release"), TOKENS, st.just(0)),
    st.tuples(st.just("takeover"), TOKENS, st.just(0)),
)


@dataclass
class Model:
    """The activity as its rules have it."""

    maximum: int
    state: str = "scheduled"
    attempt: int = 0
    holder: str = ""
    ends_us: int = 0

    def lost(self) -> None:
        """An attempt has ended without a result."""
        self.holder = ""
        self.state = "closed" if self.attempt == self.maximum else "backoff"


@given(maximum=st.sampled_from([0, 1, 2, 3]), operations=st.lists(OPERATIONS, max_size=25))
def test_an_activity_does_what_its_model_does(
    maximum: int, operations: list[tuple[str, str, int]]
) -> None:
    policy = RetryPolicySpec(maximum_attempts=maximum, maximum_interval_ms=1_000)
    world, model = World().with_activity(retry_policy=policy), Model(maximum)
    for name, token, offset in operations:
        _step(world, model, name, token, offset)
        held = world.run.activities.get(1)
        if held is None:
            assert model.state == "closed"
        else:
            assert (held.state, held.attempt, held.claim_token) == (
                model.state, model.attempt, model.holder,
            )  # fmt: skip
    endings = [event for event in world.events if getattr(event, "attempts", ())]
    assert len(endings) == (model.state == "closed")
    for event in endings:
        assert isinstance(
            event, (e.ActivityTaskCompleted, e.ActivityTaskFailed, e.ActivityTaskTimedOut)
        )
        assert [record.attempt for record in event.attempts] == list(range(1, model.attempt + 1))


def _step(world: World, model: Model, name: str, token: str, offset: int) -> None:
    held = f"{token}-{model.attempt}"
    match name:
        case "claim" if model.state == "started" and offset == 1:
            again = world.claim(1, held, attempt=model.attempt)
            assert (again.activity is not None) == (model.holder == held)
            assert again.decision is None
        case "claim":
            _claim(world, model, f"{token}-{model.attempt + 1}", offset)
        case "fail" | "complete":
            _end(world, model, held, completed=name == "complete")
        case "retry" | "lose":
            _let_time_pass(world, model, 1 if name == "retry" else 61)
        case "release":
            released = world.release(1, model.attempt + 1) is not None
            assert released == (model.state == "scheduled")
        case _:
            world.take_over()
            world.grace_until_us = 0


def _let_time_pass(world: World, model: Model, seconds: float) -> None:
    world.wait(seconds)
    world.due()
    if model.state == "backoff":
        model.state = "scheduled"
    elif model.state == "started" and world.now_us >= model.ends_us:
        model.lost()


def _claim(world: World, model: Model, held: str, offset: int) -> None:
    granted = world.claim(1, held, attempt=model.attempt + 1 + offset)
    if model.state == "scheduled" and offset == 0:
        model.state, model.holder = "started", held
        model.ends_us = world.now_us + 60 * SECOND_US
        model.attempt += 1
    else:
        assert granted.decision is None
    assert (granted.decision is not None) == (granted.activity is not None)


def _end(world: World, model: Model, held: str, *, completed: bool) -> None:
    outcome = ActivityOutcome("failed", failure=Failure("no"))
    if completed:
        outcome = ActivityOutcome("completed", encode(1))
    recorded = world.finish(1, held, outcome) is not None
    assert recorded == (model.state == "started" and model.holder == held)
    if recorded and completed:
        model.state, model.holder = "closed", ""
    elif recorded:
        model.lost()
