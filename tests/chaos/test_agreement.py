"""Every engine says the same of how a run ended, and one that says otherwise is noticed."""

from __future__ import annotations

import msgspec

from chaos.agreement import agreement
from odin.client import Client
from odin.core.requests import Outcome
from tests.cluster.support import Running


async def test_each_engine_is_asked_by_itself_and_says_the_same(chaos_cluster: Running) -> None:
    engines = chaos_cluster.state.engines
    told = {name: await outcome_of(chaos_cluster, name) for name in ("told-1", "told-2")}
    assert await agreement(engines, None, told) == ([], len(engines) * len(told))


async def test_another_end_and_another_result_are_told(chaos_cluster: Running) -> None:
    engines = chaos_cluster.state.engines
    outcome = await outcome_of(chaos_cluster, "told-3")
    for other in (
        msgspec.structs.replace(outcome, status="failed"),
        msgspec.structs.replace(outcome, result=("json", b"7")),
    ):
        wrong, compared = await agreement(engines, None, {"told-3": other})
        assert (len(wrong), compared) == (len(engines), len(engines))
        assert all("told-3" in words for words in wrong)


async def test_an_engine_that_is_not_there_is_left_out(chaos_cluster: Running) -> None:
    outcome = await outcome_of(chaos_cluster, "told-4")
    engines = [*chaos_cluster.state.engines, "http://127.0.0.1:1"]
    assert await agreement(engines, None, {"told-4": outcome}) == ([], len(engines) - 1)


async def outcome_of(cluster: Running, name: str) -> Outcome:
    async with Client(cluster.state.engines) as client:
        handle = await client.start_workflow("bench_steps", args=[1, "x"], id=name)
        return await handle.wait()
