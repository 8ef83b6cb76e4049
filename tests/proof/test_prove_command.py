"""`odin prove` and the handle's `proof`, against a real engine."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from odin.errors import NotFoundError
from odin.proof import Certificate
from tests.cli.test_cli import Cli
from tests.engine.bed import Bed
from tests.engine.flows import ACTIVITIES, WORKFLOWS, retried, sleeper

NAMED = "run_id = (SELECT run_id FROM execution WHERE workflow_id = $1)"


async def test_the_command_shows_the_evidence_and_its_exit_code_is_the_verdict(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.execute_workflow(retried, args=["key", 2], id="good")
    for workflow_id in ("old", "bad"):
        await bed.client.execute_workflow(sleeper, 1, id=workflow_id)
    await bed.execute(f"UPDATE event SET txid = '1' WHERE {NAMED}", "old")
    await bed.execute(f"DELETE FROM event WHERE event_id = 2 AND {NAMED}", "bad")
    odin = Cli(bed.addresses[0])
    async with asyncio.TaskGroup() as group:
        good = group.create_task(odin("prove", "good"))
        old = group.create_task(odin("prove", "old", "--json"))
        bad = group.create_task(odin("prove", "bad"))

    valid, unknown, invalid = good.result(), old.result(), bad.result()

    assert (valid.code, valid.err) == (0, "")
    lines = [line.split("\t") for line in valid.out.splitlines()]
    verdicts = {line[0]: line[2] for line in lines if line[0].startswith("I") and len(line) == 5}
    verdicts.pop("INVARIANT")
    assert len(verdicts) == 11
    assert set(verdicts.values()) == {"valid"}
    [activity] = [line for line in lines if line[0].startswith("fail_until")]
    assert activity[1:3] == ["2", "completed"]
    assert activity[3].startswith("attempt 2 of ")
    [term] = [line for line in lines if len(line) == 4 and line[2] == "engine-1"]
    assert term[1] == f"1 to {len(await bed.history('good'))}"
    assert unknown.code == 3
    assert msgspec.json.decode(unknown.out, type=Certificate).verdict == "unknown"
    assert invalid.code == 1
    assert "event 2 was expected here" in invalid.out


async def test_a_handle_proves_its_own_run_or_the_chain_of_the_newest(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    first = await bed.client.start_workflow(sleeper, 1, id="again")
    await first.result()
    second = await bed.client.start_workflow(sleeper, 1, id="again")
    await second.result()
    assert first.run_id is not None

    newest = await first.proof()
    pinned = await bed.client.get_workflow_handle("again", run_id=first.run_id).proof()

    assert [run.run_id for run in newest.runs] == [second.run_id]
    assert [run.run_id for run in pinned.runs] == [first.run_id]
    assert (newest.verdict, pinned.verdict) == ("valid", "valid")
    with pytest.raises(NotFoundError):
        await bed.client.get_workflow_handle("nobody").proof()
