"""`odin prove` and the handle's `proof`, against a real engine."""

from __future__ import annotations

import msgspec
import pytest

from odin.errors import NotFoundError
from odin.proof import Certificate
from tests.cli.test_cli import Cli
from tests.engine.bed import Bed
from tests.engine.flows import ACTIVITIES, WORKFLOWS, retried, sleeper

FORGET = "UPDATE event SET txid = '1'"


async def test_the_command_shows_the_evidence_and_its_exit_code_is_the_verdict(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.execute_workflow(retried, args=["key", 2], id="tried")
    odin = Cli(bed.addresses[0])

    valid = await odin("prove", "tried")

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
    assert term[1] == f"1 to {len(await bed.history('tried'))}"

    await bed.execute(FORGET)
    unknown = await odin("prove", "tried", "--json")
    assert unknown.code == 3
    assert msgspec.json.decode(unknown.out, type=Certificate).verdict == "unknown"

    await bed.execute("DELETE FROM event WHERE event_id = 2")
    invalid = await odin("prove", "tried")
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
