"""The checker's word on a rotation comes when its runs have closed, each window by itself."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from chaos.faults.books import Books
from chaos.rotate import COLUMNS, rows
from chaos.settled import judge_all, settled
from odin.client import Client
from tests.cluster.support import Running

from .support import CLOCK, lines, runner_of, short

pytestmark = pytest.mark.timeout(120)


async def test_a_window_is_settled_only_when_its_last_run_has_closed(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.settled.ASK_EVERY_SECONDS", 0.05)
    books = Books(chaos_cluster.secrets.postgres_dsn)
    before = await books.now()
    async with Client(chaos_cluster.state.engines) as client:
        handle = await client.start_workflow("nobodys", id="never-ends", task_queue="nobodys")
        after = await books.now()
        waiting = asyncio.create_task(settled(books, before, after, CLOCK))
        asked_before = await settled(books, before, before, CLOCK)
        assert (asked_before, waiting.done()) == (0, False)
        await handle.terminate("that will do")
        async with asyncio.timeout(20):
            assert await waiting == 0


async def test_what_is_still_open_in_the_end_is_counted_and_left_to_the_checker(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.settled.SETTLE_SECONDS_MAX", 0.2)
    books = Books(chaos_cluster.secrets.postgres_dsn)
    before = await books.now()
    async with Client(chaos_cluster.state.engines) as client:
        handle = await client.start_workflow("nobodys", id="stays-open", task_queue="nobodys")
        assert await settled(books, before, await books.now(), CLOCK) == 1
        await handle.terminate("that will do")


async def test_every_experiment_of_a_rotation_is_judged_in_its_own_window(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.run.BEFORE_PROBE_SECONDS", 1.0)
    monkeypatch.setattr("chaos.run.AFTER_PROBE_SECONDS", 0.5)
    runner = runner_of(chaos_cluster)
    results = [
        await runner.run(short("payments-failing"), 1),
        await runner.run(short("payments-slow"), 1),
    ]
    said: list[str] = []
    await judge_all(runner, results, said.append)
    assert [line.split(":")[0] for line in said[1:]] == ["judged 1 of 2", "judged 2 of 2"]
    # No load told what it saw, so I7 has nothing to hold starts against: unknown, and never valid.
    words = "\n".join(
        why for line in lines(chaos_cluster, "checked") for why in line.details["why"]
    )
    assert [one.checker for one in results] == ["unknown", "unknown"], words
    assert [row[COLUMNS.index("CHECKER")] for row in rows(results)] == ["unknown", "unknown"]
    books = Books(chaos_cluster.secrets.postgres_dsn)
    async with books.open() as connection:
        found = await connection.fetch("SELECT experiment_id, until FROM check_result")
    windows = dict(map(tuple, found))
    assert [windows[one.experiment_id] for one in results] == [
        datetime.fromisoformat(one.ended_at) for one in results
    ]
