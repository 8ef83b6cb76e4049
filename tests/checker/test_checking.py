"""The whole checker over what a real run has left behind."""

from checker.passes import Asked, check
from checker.replaying import Replay
from checker.selftest import self_test
from odin.runtime.clock import SystemClock


async def test_a_real_run_is_valid(rows: str) -> None:
    asked = Asked(since_us=0, replay=Replay(seed=7))
    report = await check(rows, asked, clock=SystemClock())
    assert report.verdict == "valid"


async def test_every_mutation_is_seen(rows: str) -> None:
    results = await self_test(rows, 0)
    assert [one for one in results if one.outcome != "seen"] == []
