from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.sharding import owner_of, preferred, shard_of

shard_ids = st.integers(0, 4_095)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=20)
nodes = st.sets(names, min_size=2, max_size=8)


@given(shard_id=shard_ids, nodes=nodes, data=st.data())
def test_a_leaving_node_moves_only_the_shards_it_owned(
    shard_id: int, nodes: set[str], data: st.DataObject
) -> None:
    leaver = data.draw(st.sampled_from(sorted(nodes)))
    before, after = owner_of(shard_id, nodes), owner_of(shard_id, nodes - {leaver})
    assert before in (after, leaver)


@given(shard_id=shard_ids, nodes=nodes, newcomer=names)
def test_a_coming_node_takes_shards_and_moves_none_between_others(
    shard_id: int, nodes: set[str], newcomer: str
) -> None:
    before, after = owner_of(shard_id, nodes), owner_of(shard_id, nodes | {newcomer})
    assert after in (before, newcomer)


@given(shard_id=shard_ids, nodes=nodes, data=st.data())
def test_all_nodes_agree_whatever_order_they_list_each_other_in(
    shard_id: int, nodes: set[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(sorted(nodes)))
    assert owner_of(shard_id, shuffled) == owner_of(shard_id, nodes)


def test_three_nodes_share_sixty_four_shards_within_a_factor_of_two() -> None:
    shares = Counter(preferred(range(64), ("engine-1", "engine-2", "engine-3")).values())
    assert max(shares.values()) <= 2 * min(shares.values()), shares


@given(ids=st.sets(shard_ids, max_size=20), nodes=nodes)
def test_preferred_names_the_owner_of_each_shard(ids: set[int], nodes: set[str]) -> None:
    assert preferred(ids, nodes) == {shard_id: owner_of(shard_id, nodes) for shard_id in ids}


def test_without_nodes_nobody_should_own_anything() -> None:
    assert owner_of(1, ()) is None
    assert preferred([1, 2], ()) == {}


@given(namespace=names, workflow_id=names, count=st.integers(1, 1_024))
def test_a_workflow_lives_in_one_shard_of_the_cluster(
    namespace: str, workflow_id: str, count: int
) -> None:
    shard = shard_of(namespace, workflow_id, count)
    assert 0 <= shard < count
    assert shard == shard_of(namespace, workflow_id, count)


def test_workflows_spread_over_all_shards() -> None:
    shares = Counter(shard_of("default", f"order-{number}", 64) for number in range(6_400))
    assert len(shares) == 64
    assert max(shares.values()) < 2 * 100


def test_namespace_and_workflow_id_do_not_run_into_one_another() -> None:
    pairs = [(f"a{'b' * n}", f"{'b' * (9 - n)}c") for n in range(10)]
    assert len({shard_of(namespace, workflow_id, 2**60) for namespace, workflow_id in pairs}) == 10


def test_the_shard_is_the_same_in_a_process_with_another_hash_seed() -> None:
    code = "from odin.core.sharding import shard_of; print(shard_of('default', 'order-1', 64))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{shard_of('default', 'order-1', 64)}\n"}


def test_a_cluster_has_at_least_one_shard() -> None:
    with pytest.raises(ValueError, match="at least one"):
        shard_of("default", "order-1", 0)
