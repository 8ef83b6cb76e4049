from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.ownership import (
    HandOver,
    Limits,
    Movement,
    NodeState,
    NodeView,
    ShardView,
    earliest_lease_until_us,
    is_takeable,
    since,
    takeable,
    to_hand_over,
    to_hand_over_at_once,
    to_take,
)
from odin.core.sharding import owner_of

NOW_US = 1_000_000_000
ALL = range(64)


def node(name: str, state: NodeState = NodeState.ALIVE, left_us: int = 5_000_000) -> NodeView:
    return NodeView(f"inc-{name}", name, state, NOW_US + left_us)


ME, OTHER, DEAD = node("a"), node("b"), node("c", NodeState.DEAD, -1)
NODES = {view.incarnation: view for view in (ME, OTHER, DEAD)}


def may_take(shard: ShardView, *, holds_term: bool = False) -> bool:
    return is_takeable(shard, NODES, ME.incarnation, NOW_US, holds_term=holds_term)


def test_a_shard_of_a_node_marked_dead_may_be_taken() -> None:
    assert may_take(ShardView(1, DEAD.incarnation))


def test_a_shard_of_a_living_or_unknown_node_may_not_be_taken() -> None:
    assert not may_take(ShardView(1, OTHER.incarnation))
    assert not may_take(ShardView(1, "inc-never-seen"))


def test_an_expired_owner_that_nobody_has_marked_dead_still_holds_its_shard() -> None:
    nodes = NODES | {"inc-b": replace(OTHER, lease_until_us=NOW_US - 1)}
    shard = ShardView(1, OTHER.incarnation)
    assert not is_takeable(shard, nodes, ME.incarnation, NOW_US, holds_term=False)


def test_a_shard_that_names_me_may_be_taken_only_while_i_hold_no_term() -> None:
    assert may_take(ShardView(1, ME.incarnation))
    assert not may_take(ShardView(1, ME.incarnation), holds_term=True)


@pytest.mark.parametrize(
    ("heir", "released_us_ago", "expected"),
    [
        (None, 0, True),
        (ME.incarnation, 0, True),
        (DEAD.incarnation, 0, True),
        (OTHER.incarnation, 2_999_999, False),
        (OTHER.incarnation, 3_000_000, True),
    ],
)
def test_a_released_shard_is_its_heir_s_for_three_seconds(
    heir: str | None,
    released_us_ago: int,
    expected: bool,  # noqa: FBT001 - a table column
) -> None:
    assert may_take(ShardView(1, None, heir, NOW_US - released_us_ago)) is expected


@pytest.mark.parametrize(
    "own",
    [
        replace(ME, state=NodeState.DRAINING),
        replace(ME, state=NodeState.DEAD),
        replace(ME, lease_until_us=NOW_US),
        replace(ME, lease_until_us=NOW_US + 20_000_001),
    ],
)
def test_a_node_that_may_not_own_takes_nothing(own: NodeView) -> None:
    nodes = NODES | {own.incarnation: own}
    assert takeable([ShardView(1, None)], nodes, ME.incarnation, NOW_US, ()) == []
    assert takeable([ShardView(1, None)], {}, ME.incarnation, NOW_US, ()) == []


def test_own_shards_are_tried_at_once_and_those_of_others_after_three_seconds() -> None:
    candidates = [ShardView(shard_id, None) for shard_id in ALL]
    mine = [shard_id for shard_id in ALL if owner_of(shard_id, ("a", "b")) == "a"]
    first_seen = dict.fromkeys(ALL, 100.0)
    assert 0 < len(mine) < 64
    assert to_take(candidates, first_seen, ("a", "b"), ME, 102.9) == mine
    assert to_take(candidates, first_seen, ("a", "b"), ME, 103.0) == list(ALL)


def test_the_heir_of_a_shard_and_the_owner_that_lost_its_term_try_at_once() -> None:
    other_s = [shard_id for shard_id in ALL if owner_of(shard_id, ("a", "b")) == "b"][:2]
    candidates = [
        ShardView(other_s[0], None, ME.incarnation),
        ShardView(other_s[1], ME.incarnation),
    ]
    assert to_take(candidates, {}, ("a", "b"), ME, 0.0) == other_s


READY = {view.incarnation: view for view in (ME, OTHER)}


def hand_over(movement: Movement, now: float = 1_000.0) -> list[HandOver]:
    return to_hand_over(ALL, READY, ME.incarnation, movement, now)


def test_an_heir_is_trusted_after_ten_seconds_of_being_ready() -> None:
    assert hand_over(Movement({OTHER.incarnation: 990.1}, {})) == []
    moved = hand_over(Movement({OTHER.incarnation: 990.0}, {}))
    assert len(moved) == Limits().hand_overs_at_once
    assert {one.heir for one in moved} == {OTHER.incarnation}


def test_an_heir_never_seen_ready_gets_nothing() -> None:
    assert hand_over(Movement({}, {})) == []


@given(in_progress=st.integers(0, 10))
def test_at_most_four_hand_overs_run_at_once(in_progress: int) -> None:
    moved = hand_over(Movement({OTHER.incarnation: 0.0}, {}, in_progress))
    assert len(moved) == max(0, 4 - in_progress)


def test_no_shard_is_handed_over_twice_in_thirty_seconds() -> None:
    movement = Movement({OTHER.incarnation: 0.0}, dict.fromkeys(ALL, 970.1))
    assert hand_over(movement) == []
    assert hand_over(movement, now=1_000.2) != []


def test_a_shard_that_hashing_gives_me_stays_even_if_i_am_listed_as_ready() -> None:
    movement = Movement({OTHER.incarnation: 0.0, ME.incarnation: 0.0}, {})
    assert ME.incarnation not in {one.heir for one in hand_over(movement)}


def test_a_node_that_stops_hands_everything_over_at_once() -> None:
    moved = to_hand_over_at_once(ALL, READY, ME.incarnation)
    assert [one.shard_id for one in moved] == list(ALL)
    assert {one.heir for one in moved} == {OTHER.incarnation}


def test_the_last_node_releases_to_whoever_comes() -> None:
    moved = to_hand_over_at_once([3], {ME.incarnation: ME}, ME.incarnation)
    assert moved == [HandOver(3, None)]


def test_since_keeps_the_first_sight_and_forgets_a_break() -> None:
    seen = since({}, ["a", "b"], 1.0)
    seen = since(seen, ["a"], 2.0)
    assert since(seen, ["a", "b"], 3.0) == {"a": 1.0, "b": 3.0}


def test_the_next_look_is_at_the_earliest_end_of_another_s_lease() -> None:
    views = [ME, OTHER, DEAD, node("d", NodeState.DRAINING, 1_000)]
    assert earliest_lease_until_us(views, ME.incarnation) == NOW_US + 1_000
    assert earliest_lease_until_us([ME, DEAD], ME.incarnation) is None
