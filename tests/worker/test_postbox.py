"""The laws of what must be answered: repeated until it is, to the owner of the moment."""

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odin.core.wire import NotOwner, NotWanted, ShardEntry
from odin.errors import InvalidArgumentError
from odin.runtime.links import LinkClosedError
from odin.worker.postbox import CLAIM, LATE_SECONDS, REPORT, RESULT, RETRY_SECONDS, Ask, Postbox


class Wire:
    """A link that keeps what is sent on it until the test answers."""

    def __init__(self) -> None:
        self.open: list[tuple[Any, Callable[[Any], None]]] = []
        self.seq = itertools.count(1)
        self.limit = False

    def request(self, make: Callable[[int], Any], on_answer: Callable[[Any], None]) -> int:
        if self.limit:
            raise InvalidArgumentError("too large")
        seq = next(self.seq)
        self.open.append((make(seq), on_answer))
        return seq

    def answer(self, answer: object, at: int = 0) -> None:
        self.open.pop(at)[1](answer)

    def cut(self) -> None:
        waiting, self.open = self.open, []
        for _, on_answer in waiting:
            on_answer(LinkClosedError("cut"))


class World:
    """A postbox between two engines, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wires = {"a": Wire(), "b": Wire()}
        self.owner: str | None = "a"
        self.answers: dict[str, list[Any]] = {}
        self.late: list[str] = []
        self.box = Postbox(self.route, lambda: self.now, self.learn)

    def route(self, _: int) -> Wire | None:
        return self.wires.get(self.owner) if self.owner else None

    def learn(self, entry: ShardEntry) -> None:
        if entry.incarnation and entry.incarnation != self.owner:
            self.owner = entry.incarnation
            self.box.repeat([entry.shard_id])

    def post(self, name: str, rank: int = CLAIM) -> None:
        self.answers[name] = []
        ask = Ask((name,), 0, rank, lambda seq: (name, seq), self.answers[name].append)
        ask.on_late = lambda: self.late.append(name)
        self.box.post(ask)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.box.tick()

    def sent(self, wire: str) -> list[str]:
        return [message[0] for message, _ in self.wires[wire].open]


def not_owner(owner: str, range_id: int = 2) -> NotOwner:
    return NotOwner(0, ShardEntry(0, owner, range_id), 100)


def test_an_ask_without_an_owner_is_sent_when_there_is_one() -> None:
    world = World()
    world.owner = None
    world.post("x")
    world.owner = "b"
    world.box.repeat([0])
    assert world.sent("b") == ["x"]


def test_repeats_go_out_as_reports_then_results_then_claims() -> None:
    world = World()
    world.post("claim", CLAIM)
    world.post("result", RESULT)
    world.post("report", REPORT)
    world.owner = "b"
    world.box.repeat([0])
    assert world.sent("b") == ["report", "result", "claim"]


def test_an_ask_is_late_once_and_goes_out_again_after_a_while() -> None:
    world = World()
    world.post("x")
    world.pass_time(LATE_SECONDS + 0.01)
    world.pass_time(0.1)
    assert world.late == ["x"]
    assert world.sent("a") == ["x"]
    world.pass_time(RETRY_SECONDS)
    assert world.sent("a") == ["x", "x"]


def test_the_first_answer_counts_and_later_ones_are_dropped() -> None:
    world = World()
    world.post("x")
    world.owner = "b"
    world.box.repeat([0])
    world.wires["a"].answer(NotWanted(1))
    world.wires["b"].answer(NotWanted(2))
    assert world.answers["x"] == [NotWanted(1)]
    assert len(world.box) == 0


def test_not_owner_of_a_former_owner_changes_nothing() -> None:
    world = World()
    world.post("x")
    world.owner = "b"
    world.box.repeat([0])
    world.wires["a"].answer(not_owner("a"))
    assert world.owner == "b"
    assert world.sent("b") == ["x"]


def test_not_owner_again_and_again_is_asked_ever_more_slowly() -> None:
    world = World()
    world.post("x")
    asked = 0
    for _ in range(200):
        for at in reversed(range(len(world.wires["a"].open))):
            asked += 1
            world.wires["a"].answer(not_owner("a"), at)
        world.pass_time(0.1)
    assert 8 <= asked <= 20


def test_what_is_too_large_to_be_sent_is_told_and_forgotten() -> None:
    world = World()
    world.wires["a"].limit = True
    errors: list[InvalidArgumentError] = []
    world.box.post(Ask(("x",), 0, REPORT, str, print, on_unsendable=errors.append))
    assert len(errors) == 1
    assert len(world.box) == 0


STEPS = st.lists(
    st.sampled_from(["post", "cut", "move", "lose", "answer", "not owner", "tick", "long tick"]),
    max_size=60,
)


def take_step(world: World, step: str, name: str) -> None:  # noqa: C901 - a table of steps
    wire = world.wires[world.owner or "a"]
    match step:
        case "post":
            world.post(name, len(world.answers) % 3)
        case "cut":
            wire.cut()
        case "move":
            world.owner = "b" if world.owner == "a" else "a"
            world.box.repeat([0])
        case "lose":
            world.owner = None
        case "answer" if wire.open:
            wire.answer(NotWanted(0))
        case "not owner" if wire.open:
            wire.answer(not_owner(world.owner or ""))
        case "tick":
            world.pass_time(0.5)
        case "long tick":
            world.pass_time(RETRY_SECONDS)
        case _:
            pass


@given(STEPS)
def test_everything_is_answered_exactly_once_whatever_happens_before(steps: list[str]) -> None:
    world = World()
    for at, step in enumerate(steps):
        take_step(world, step, f"x{at}")
        assert all(len(one) <= 1 for one in world.answers.values())
    world.owner = "b"
    world.wires["b"].cut()
    world.box.repeat([0])
    while world.wires["b"].open:
        world.wires["b"].answer(NotWanted(0))
    assert all(len(one) == 1 for one in world.answers.values())
    assert len(world.box) == 0
