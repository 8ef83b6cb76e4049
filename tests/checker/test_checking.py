"""The whole checker over what a real run has left behind: green as it is, red when spoiled."""

from __future__ import annotations

import asyncpg
import pytest

from checker.passes import Asked, check, keep
from checker.replaying import Replay
from checker.selftest import MUTATIONS, self_test
from checker.snapshot import snapshot
from checker.verdicts import PROMISES, Report
from odin.proof.findings import Finding
from odin.runtime.clock import SystemClock
from tests.checker.real_run import run_on
from tests.checker.spoiled import HEAL, KEEP, SPOILED

NOT_REPLAYED = Asked(since_us=0)


async def findings(dsn: str, asked: Asked = NOT_REPLAYED) -> dict[str, Finding]:
    report = await check(dsn, asked, clock=SystemClock())
    return {one.invariant: one for one in report.findings}


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    return {name: one.verdict for name, one in found.items() if one.verdict != "valid"}


async def test_a_real_run_is_valid_and_much_was_judged(real_rows: str) -> None:
    told: list[str] = []
    asked = Asked(since_us=0, replay=Replay(seed=7))
    report = await check(real_rows, asked, clock=SystemClock(), tell=told.append)
    found = {one.invariant: one for one in report.findings}

    assert verdicts(found) == {"I17": "unknown", "I24": "unknown"}
    assert report.verdict == "valid"
    assert list(found) == list(PROMISES)
    idle = [one.invariant for one in report.findings if one.verdict == "valid" and not one.counts]
    assert idle == []
    assert found["I4"].counts["judged"] > 8  # some terms are of the engine that took over
    assert found["I7"].counts.keys() >= {"ok", "fail", "unknown"}
    assert found["I18"].counts["runs"] > 5
    assert "runs with" in told[0]


async def test_every_mutation_in_memory_is_seen(real_rows: str) -> None:
    results = await self_test(real_rows, 0)

    assert [one for one in results if one.outcome != "seen"] == []
    assert {one.invariant for one in results} == set(PROMISES) - {"I17"}
    assert len(results) == len(MUTATIONS) + 1


@pytest.mark.parametrize("half", [0, 1])
async def test_every_spoiled_table_is_seen(rows: str, half: int) -> None:
    await run_on(rows, *KEEP)
    missed = {}
    for name, (table, statement, invariant) in list(SPOILED.items())[half::2]:
        await run_on(rows, statement)
        found = await findings(rows)
        if found[invariant].verdict != "invalid":
            missed[name] = found[invariant]
        await run_on(rows, *HEAL[table])

    assert missed == {}
    assert set(verdicts(await findings(rows))) == {"I17", "I18", "I24"}


async def test_a_check_that_fails_is_unknown_and_the_others_go_on(rows: str) -> None:
    await run_on(
        rows,
        "ALTER TABLE mock_stock RENAME TO elsewhere",
        "ALTER TABLE client_log RENAME TO elsewhere_too",
    )
    found = await findings(rows)

    unknown = {"I7", "I8", "I11", "I13", "I17", "I18", "I21", "I22", "I24"}
    assert verdicts(found) == dict.fromkeys(sorted(unknown, key=list(PROMISES).index), "unknown")
    assert "failed: UndefinedTableError" in found["I7"].words


async def test_without_any_row_nothing_is_proven(dsn: str) -> None:
    report = await check(dsn, NOT_REPLAYED, clock=SystemClock())

    assert report.verdict == "unknown"
    found = {one.invariant: one for one in report.findings}
    assert {"I1", "I3", "I4", "I7", "I10", "I19", "I20"} <= verdicts(found).keys()
    assert found["I1"].words == "nothing to judge: no run in the window"


async def test_only_what_touches_the_window_is_judged_but_its_chains_whole(real_rows: str) -> None:
    connection = await asyncpg.connect(real_rows)
    chain = await connection.fetch(
        "SELECT to_us(started_at) AS us FROM execution WHERE workflow_type = 'subscription'"
        " ORDER BY started_at"
    )
    others = await connection.fetchval(
        "SELECT count(*) FROM execution WHERE workflow_type <> 'subscription'"
        " AND (closed_at IS NULL OR to_us(closed_at) >= $1)",
        chain[-1]["us"],
    )
    await connection.close()
    found = await findings(real_rows, Asked(since_us=chain[-1]["us"]))

    assert len(chain) > 2
    assert found["I1"].counts["judged"] == len(chain) + others
    assert found["I19"].counts["runs"] == len(chain) + others


async def test_an_outcome_is_remembered_from_pass_to_pass(rows: str) -> None:
    first = await check(rows, NOT_REPLAYED, clock=SystemClock())
    number = await keep(rows, first)
    await run_on(
        rows,
        """
        UPDATE event SET attributes = '\\x81a6726573756c7492a46a736f6ec400'
        WHERE type = 'workflow_execution_completed'
          AND run_id = (SELECT run_id FROM execution WHERE workflow_id = 'collect-1')
        """,
    )
    second = await check(rows, NOT_REPLAYED, clock=SystemClock())

    assert number > 0
    by_name = {one.invariant: one for one in second.findings}
    assert by_name["I20"].verdict == "invalid"
    assert len(by_name["I20"].subjects) == 1


async def test_a_report_is_kept_whole(rows: str) -> None:
    report: Report = await check(rows, NOT_REPLAYED, clock=SystemClock())
    number = await keep(rows, report)
    connection = await asyncpg.connect(rows)
    kept = await connection.fetchrow("SELECT * FROM check_result WHERE id = $1", number)
    await connection.close()

    assert kept is not None
    assert (kept["verdict"], kept["experiment_id"]) == (report.verdict, None)
    assert '"invariant":"I24"' in kept["findings"]
    assert len(kept["outcomes"]) > 500


@pytest.mark.parametrize(
    ("evidence", "healed", "expected"),
    [
        ('{"faults": [{"fault": "kill", "bit": true}]}', "clock_timestamp()", "valid"),
        ('{"faults": [{"fault": "kill", "bit": false}]}', "clock_timestamp()", "unknown"),
        ('{"faults": []}', "clock_timestamp()", "unknown"),
        ("no json", "clock_timestamp()", "unknown"),
        ('{"faults": [{"fault": "kill", "bit": true}]}', "NULL", "unknown"),
    ],
)
async def test_an_experiment_counts_only_if_its_fault_has_bitten(
    rows: str, evidence: str, healed: str, expected: str
) -> None:
    await run_on(
        rows,
        "INSERT INTO chaos_experiment (id, scenario, status, healed_at, evidence)"
        f" VALUES ('x-1', 'kill', 'ended', {healed}, '{evidence}')",
    )
    report = await check(rows, Asked(since_us=0, experiment="x-1"), clock=SystemClock())
    found = {one.invariant: one.verdict for one in report.findings}

    assert found["I24"] == expected
    assert found["I9"] == ("unknown" if healed == "NULL" else "valid")


async def test_the_snapshot_neither_writes_nor_is_in_the_way(rows: str) -> None:
    async with snapshot(rows, 0, None) as taken:
        before = await taken.fetch("count_runs", 0, taken.window.until_us)
        await run_on(
            rows,
            "SET lock_timeout = '1s'",
            "UPDATE execution SET signal_count = signal_count + 1",
            "DELETE FROM execution WHERE status = 'completed'",
            "UPDATE shard SET range_id = range_id + 1",
        )
        assert await taken.fetch("count_runs", 0, taken.window.until_us) == before
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await taken.connection.execute("DELETE FROM event")
