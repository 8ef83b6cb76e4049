"""A history that has grown to its limit: nothing is lost, and everybody is told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import engine.shards
from odin import workflow
from odin.client import WorkflowHandle
from odin.core.history_limits import HistoryLimits
from odin.errors import FailedPreconditionError
from tests.door.flows import ACTIVITIES, TEN
from tests.engine.bed import Bed, running_bed

LIMITS = HistoryLimits(events_warned=20, events_max=60, bytes_warned=10**5, bytes_max=10**6)


@workflow.defn
class Endless:
    """Runs activities until told otherwise."""

    def __init__(self) -> None:
        self.signals = 0

    @workflow.run
    async def run(self, kind: str) -> int:
        """Never end, unless the history fills up and `kind` says to mind it."""
        rounds = 0
        while True:
            rounds += 1
            if kind == "minds" and workflow.info().get_current_history_length() > 40:
                return rounds
            name, argument = ("big", rounds) if kind == "large" else ("number", rounds)
            await workflow.execute_activity(name, argument, start_to_close_timeout=TEN)

    @workflow.signal
    def poke(self) -> None:
        """Count."""
        self.signals += 1


@pytest.fixture
async def small(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bed]:
    """A bed whose histories are full early."""
    monkeypatch.setattr(engine.shards, "HISTORY_LIMITS", LIMITS)
    async with running_bed(dsn) as bed:
        await bed.start_worker([Endless], ACTIVITIES)
        yield bed


async def until_full(handle: WorkflowHandle[int]) -> str:
    async with asyncio.timeout(20):
        while (found := await handle.describe()).workflow_task.last_failure is None:
            await asyncio.sleep(0.02)
    assert found.status == "running"
    return found.workflow_task.last_failure.message


@pytest.mark.parametrize("kind", ["endless", "large"])
async def test_a_full_history_fails_the_task_refuses_signals_and_lets_itself_be_terminated(
    small: Bed, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    handle = await small.client.start_workflow(Endless.run, kind, id=kind)
    said = await until_full(handle)
    assert "continue as new" in said
    assert [one.getMessage() for one in caplog.records].count(
        "history grows long, let the run continue as new"
    ) in (1, 2)  # once for its events, once for its bytes
    with pytest.raises(FailedPreconditionError) as refused:
        await handle.signal(Endless.poke)
    assert refused.value.reason == "HISTORY_TOO_LONG"
    history = [event async for event in handle.fetch_history_events()]
    assert len(history) <= LIMITS.events_max + 1  # what was pending has ended
    await handle.terminate("full")
    assert (await handle.describe()).status == "terminated"


async def test_code_that_minds_its_history_ends_before_it_is_full(small: Bed) -> None:
    async with asyncio.timeout(20):
        assert await small.client.execute_workflow(Endless.run, "minds", id="minds") > 5
