"""The registry of terms: late news of an old term never ends a newer one."""

# ruff: noqa: ARG002 - stand-ins take what their protocols say, and use none of it

from collections.abc import Mapping

from engine.lane import Lane
from engine.run import Run
from engine.shards import Shards
from engine.store.group import Committed, Group
from engine.term import Term
from engine.ticket import ShardLostError
from odin.core.decide import Decision, OutboxTask
from odin.runtime.clock import SystemClock
from odin.runtime.ids import SeededIds
from tests.core.decide_world import World


class Alive:
    """A lease that lasts."""

    incarnation = "me"

    def now_us(self) -> int:
        return 1

    def may_serve(self) -> bool:
        return True


class Noted:
    """Effects that only note which terms began and ended."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def queue_due(self, term: Term, run: Run) -> None:
        """Nothing is due."""

    def committed(self, term: Term, decision: Decision) -> None:
        """Nothing leaves."""

    def outbox_written(self, term: Term, outbox_id: int, task: OutboxTask) -> None:
        """Nothing is published."""

    def is_linked(self, worker: str) -> bool:
        return False

    def term_began(self, term: Term) -> None:
        """Nothing is swept."""

    def term_ended(self, term: Term) -> None:
        self.ended.append(term.range_id)


class NoCommits:
    """A lane's store that is never asked: the lanes here do not run."""

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        raise AssertionError("no lane runs in these tests")

    async def bump(self, incarnation: str, terms: Mapping[int, int]) -> dict[int, int]:
        raise AssertionError("no lane runs in these tests")


async def registry() -> tuple[Shards, Noted]:
    """Return the shards of a node that owns none yet."""
    noted = Noted()
    shards = Shards(Alive(), noted, SystemClock(), SeededIds(1), 8)
    shards.use_lanes([Lane(NoCommits(), shards, "me")])
    return shards, noted


async def test_a_refused_write_of_an_old_term_does_not_end_the_newer_one() -> None:
    shards, noted = await registry()
    shards.begin(3, 7)
    term = shards.begin(3, 9)

    shards.terms_lost({3: 7}, {3: ShardLostError("refused")})

    assert shards.serving(3) is term
    assert noted.ended == [7]


async def test_a_refused_write_ends_its_own_term() -> None:
    shards, noted = await registry()
    term = shards.begin(3, 7)

    shards.terms_lost({3: 7}, {3: ShardLostError("refused")})

    assert term.is_over
    assert 3 not in shards.terms
    assert noted.ended == [7]


async def test_an_acquisition_and_a_bump_answered_in_the_other_order_leave_the_higher_range() -> (
    None
):
    shards, noted = await registry()
    term = shards.begin(3, 9)

    assert shards.begin(3, 8) is term
    assert shards.entry(3).range_id == 9
    assert noted.ended == []


async def test_a_bump_that_is_answered_while_its_engine_leaves_begins_no_term() -> None:
    shards, noted = await registry()
    shards.begin(3, 7)

    shards.leave("its owner stops")
    shards.shards_bumped({3: 8})

    assert shards.terms == {}
    assert noted.ended == [7]


async def test_a_new_term_joins_no_group_that_an_earlier_one_was_taken_out_of() -> None:
    """The group's ticket keeps the earlier term's error for the shard, and would tell both."""
    shards, _ = await registry()
    lane = Lane(NoCommits(), shards, "me")
    decision = World().start().decision
    assert decision is not None
    before = lane.add(3, 7, decision)
    lane.drop({3: 7}, {3: ShardLostError("in doubt")})

    after = lane.add(3, 8, decision)

    assert isinstance(before.error(3), ShardLostError)
    assert after.error(3) is None
    assert lane.add(4, 1, decision) is after
