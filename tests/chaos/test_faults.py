"""Each fault on a real cluster: it is seen to bite, and nothing of it is left when it is healed."""

from __future__ import annotations

import asyncio

import pytest

from chaos.faults.base import Bite, Fault
from chaos.faults.catalogue import fault_of
from chaos.faults.links import answer, tried
from chaos.faults.mocks import Misbehave
from chaos.faults.processes import Kill, run_state
from chaos.faults.stage import Stage
from chaos.probe import steady
from odin.client import Client
from tests.cluster.support import Running, until

from .support import stage_of

pytestmark = pytest.mark.timeout(120)


async def bitten(fault: Fault) -> Bite:
    await fault.prepare()
    await fault.inject()
    return await fault.verify()


def is_back(cluster: Running, name: str, before: int | None) -> bool:
    part = cluster.part(name)
    return part.phase == "running" and part.pid not in (None, before)


async def all_well(stage: Stage) -> None:
    """Wait until everything serves again: what one test breaks is not the next one's concern."""
    wrong = ["nobody looked"]
    for number in range(60):
        wrong = await steady(stage, number)
        if not wrong:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(wrong)


async def test_a_paused_part_stands_still_until_it_is_healed(chaos_cluster: Running) -> None:
    async with stage_of(chaos_cluster, "pause") as stage:
        fault = fault_of("pause valkey", stage)
        bite = await bitten(fault)
        pid = chaos_cluster.part("valkey").pid
        assert bite.is_seen
        assert bite.evidence["states"][str(pid)] == "T"
        await fault.heal()
        await fault.heal()
        assert pid is not None
        assert run_state(pid) != "T"
        assert stage.levers.breaker.broken() == []


async def test_a_cut_link_answers_nobody_until_it_is_mended(chaos_cluster: Running) -> None:
    async with stage_of(chaos_cluster, "cut") as stage:
        fault = fault_of("cut worker from engines", stage)
        bite = await bitten(fault)
        assert bite.is_seen, bite
        assert {one.split()[0] for one in bite.evidence["answers"].values()} == {"silent"}
        await fault.heal()
        links = await stage.levers.breaker.links(stage.victims["worker"], to="engines")
        healed = await tried(stage, links)
        assert all(isinstance(one, float) for one in healed.values()), healed


async def test_a_slow_postgres_is_measured_through_every_engines_link(
    chaos_cluster: Running,
) -> None:
    async with stage_of(chaos_cluster, "slow") as stage:
        fault = fault_of("slow postgres", stage)
        bite = await bitten(fault)
        await fault.heal()
        assert bite.is_seen, bite
        assert set(bite.evidence["answers"]) == {"engine-1 → postgres", "engine-2 → postgres"}
        assert min(bite.evidence["answers"].values()) >= 0.3


async def test_a_link_that_works_is_not_taken_for_a_cut_one(chaos_cluster: Running) -> None:
    async with stage_of(chaos_cluster, "whole") as stage:
        views = await stage.levers.breaker.link_views()
        links = [one.name for one in views if one.name.part in ("engine-1", "payments")]
        found = await tried(stage, links)
        assert {one.rpartition(" ")[2] for one in found} >= {"postgres", "valkey", "engine-2"}
        assert all(isinstance(one, float) for one in found.values()), found
        assert await answer(stage, 1, "postgres") == "refused"


async def test_every_backend_of_odin_is_terminated_and_the_engines_connect_again(
    chaos_cluster: Running,
) -> None:
    async with stage_of(chaos_cluster, "backends") as stage:
        bite = await bitten(fault_of("terminate backends", stage))
        assert bite.is_seen
        assert bite.evidence["before"] > 0
        await all_well(stage)


async def test_a_killed_worker_is_seen_to_be_gone_and_comes_back(chaos_cluster: Running) -> None:
    before = chaos_cluster.part("worker-2").pid
    async with stage_of(chaos_cluster, "kill") as stage:
        bite = await bitten(Kill(stage, ["worker-2"]))
        assert bite.is_seen
        assert bite.evidence["killed"] == {"worker-2": before}
        await until(lambda: is_back(chaos_cluster, "worker-2", before), 20)


async def test_a_kill_whose_moment_never_comes_has_not_bitten(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(stage: Stage, part: str) -> None:
        return None

    before = chaos_cluster.part("worker-1").pid
    monkeypatch.setattr("chaos.faults.processes.MOMENT_SECONDS", 0.1)
    async with stage_of(chaos_cluster, "moment") as stage:
        bite = await bitten(Kill(stage, ["worker-1"], never))
        assert not bite.is_seen
        assert bite.evidence["still there"] == []
        await until(lambda: is_back(chaos_cluster, "worker-1", before), 20)


async def test_a_starved_engine_mostly_stands_and_runs_again_when_healed(
    chaos_cluster: Running,
) -> None:
    async with stage_of(chaos_cluster, "starve") as stage:
        fault = fault_of("starve engine", stage)
        bite = await bitten(fault)
        # Whoever kills the runner leaves it to the cluster's record.
        assert [one.kind for one in stage.levers.breaker.broken()] == ["frozen"]
        await fault.heal()
        assert bite.is_seen, bite
        pid = chaos_cluster.part(stage.victims["engine"]).pid
        assert pid is not None
        assert {run_state(pid) for _ in range(20)} != {"T"}
        assert stage.levers.breaker.broken() == []
        await all_well(stage)


async def test_a_mock_misbehaves_only_until_it_is_healed(chaos_cluster: Running) -> None:
    async with stage_of(chaos_cluster, "mock") as stage:
        fault = Misbehave(stage, "failing", probability=1.0)
        await fault.prepare()
        await fault.inject()
        async with Client(stage.state.engines) as client:
            order = {"order_id": "t-mock", "sku": "sku-01", "card": "card-1"}
            handle = await client.start_workflow("Order", order, id="t-mock")
            bite = await fault.verify()
            await fault.heal()
            result = await handle.result()
        assert bite.is_seen
        assert bite.evidence["calls that met it"] >= 1
        assert result["status"] == "completed"


async def test_poison_is_refused_or_fails_by_itself_and_its_runs_are_ended(
    chaos_cluster: Running,
) -> None:
    async with stage_of(chaos_cluster, "poison") as stage:
        fault = fault_of("poison", stage)
        bite = await bitten(fault)
        assert bite.is_seen, bite
        assert set(bite.evidence["door"]) == {400}
        assert len(bite.evidence["runs"]) == 2
