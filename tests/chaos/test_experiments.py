"""Whole experiments: their verdicts, their records, and what is left when a runner is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess

import asyncpg
import pytest

from chaos.faults.base import Bite, Fault
from chaos.faults.catalogue import FAULTS
from chaos.faults.mocks import Misbehave
from chaos.faults.processes import Pause, run_state
from chaos.faults.stage import Stage
from chaos.faults.undo import tell_mock
from chaos.journal import Line, read
from chaos.past import show_history, show_one
from chaos.running import ExperimentRunsError, exclusive, read_running
from odin.errors import FailedPreconditionError, NotFoundError
from tests.cluster.support import Running, environ, until

from .support import ask, command, lines, runner_of, short

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe only for a moment before and after."""
    monkeypatch.setattr("chaos.run.BEFORE_PROBE_SECONDS", 1.0)
    monkeypatch.setattr("chaos.run.AFTER_PROBE_SECONDS", 0.5)


async def test_an_experiment_that_bit_and_was_survived_passes_and_leaves_evidence(
    chaos_cluster: Running,
) -> None:
    result = await runner_of(chaos_cluster).run(short("valkey-down"), 1)
    assert result.verdict == "pass", result
    assert result.bites == {"pause valkey": True}
    assert result.counts["finished"] == result.counts["started"] > 3
    assert result.counts["answers compared"] == 2 * result.counts["finished"]  # of both engines
    phases = [one.phase for one in lines_of(chaos_cluster, result.experiment_id)]
    assert phases == [
        *("armed", "probed", "drawn", "injected", "verified", "healed", "probed", "judged")
    ]
    row = await experiment_row(chaos_cluster, result.experiment_id)
    assert (row["scenario"], row["seed"], row["verdict"]) == ("valkey-down", 1, "valid")
    assert row["started_at"] < row["healed_at"] < row["ended_at"]
    assert json.loads(row["evidence"])["faults"] == [{"fault": "pause valkey", "bit": True}]


async def test_a_fault_that_does_not_bite_gives_unknown(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def toothless(stage: Stage) -> Fault:
        fault = Misbehave(stage, "failing", probability=0.0)
        monkeypatch.setattr(Misbehave, "verify_seconds", 1.0)
        return fault

    monkeypatch.setitem(FAULTS, "failing payments", toothless)
    result = await runner_of(chaos_cluster).run(short("payments-failing"), 1)
    assert result.bites == {"failing payments": False}
    assert result.verdict == "unknown"
    assert result.recovered_seconds is not None
    row = await experiment_row(chaos_cluster, result.experiment_id)
    assert row["verdict"] == "unknown"


async def test_a_consequence_that_is_not_seen_gives_unknown(chaos_cluster: Running) -> None:
    scenario = short("valkey-down", expects=("bumped",))
    result = await runner_of(chaos_cluster).run(scenario, 1)
    assert (result.seen, result.verdict) == ({"bumped": False}, "unknown")


async def test_what_the_cluster_lacks_gives_unknown_and_nothing_is_broken(
    chaos_cluster: Running,
) -> None:
    result = await runner_of(chaos_cluster).run(short("broker-alarm"), 1)
    assert result.verdict == "unknown"
    assert result.reasons == ["the cluster has no RabbitMQ of its own"]
    assert result.bites == {}


async def test_nothing_is_broken_before_its_undo_is_on_disk(
    chaos_cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    class Watched(Pause):
        async def inject(self) -> None:
            running = read_running(chaos_cluster.place.folder)
            seen.append([one.kind for one in running.undo] if running else [])

        async def verify(self) -> Bite:
            return Bite(is_seen=True)

    monkeypatch.setitem(FAULTS, "pause valkey", lambda stage: Watched(stage, ["valkey"]))
    await runner_of(chaos_cluster).run(short("valkey-down"), 1)
    assert seen == [["cluster"]]
    assert read_running(chaos_cluster.place.folder) is None


async def test_a_cancelled_experiment_heals_on_its_way_out(chaos_cluster: Running) -> None:
    scenario = short("valkey-down", hold_seconds=60.0)
    pid = chaos_cluster.part("valkey").pid
    assert pid is not None
    task = asyncio.get_running_loop().create_task(runner_of(chaos_cluster).run(scenario, 1))
    async with asyncio.timeout(20):
        while run_state(pid) != "T":
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run_state(pid) != "T"
    assert read_running(chaos_cluster.place.folder) is None
    assert lines(chaos_cluster, "halted")[-1].details["why"] == "it was told to end"


async def test_two_experiments_at_once_are_refused(chaos_cluster: Running) -> None:
    with exclusive(chaos_cluster.place.folder), pytest.raises(ExperimentRunsError):
        await runner_of(chaos_cluster).run(short("valkey-down"), 1)


async def test_nothing_begins_while_something_is_broken_by_hand(chaos_cluster: Running) -> None:
    runner = runner_of(chaos_cluster)
    runner.levers.breaker.freeze(["worker-2"], 30.0)
    with pytest.raises(FailedPreconditionError, match="froze worker-2"):
        await runner.run(short("valkey-down"), 1)
    await runner.levers.breaker.heal()


async def test_halt_undoes_what_a_killed_runner_has_left(chaos_cluster: Running) -> None:
    pid = chaos_cluster.part("valkey").pid
    assert pid is not None
    await killed_runner(chaos_cluster, "valkey-down")
    assert run_state(pid) == "T"
    running = read_running(chaos_cluster.place.folder)
    assert running is not None
    assert running.scenario == "valkey-down"
    code, text = await ask("halt", cluster=chaos_cluster)
    assert code == 0, text
    assert running.experiment_id in text
    assert run_state(pid) != "T"
    assert read_running(chaos_cluster.place.folder) is None
    await ask("resume", cluster=chaos_cluster)


async def test_the_next_experiment_undoes_what_a_killed_runner_has_left(
    chaos_cluster: Running,
) -> None:
    await killed_runner(chaos_cluster, "payments-slow")
    assert "slow" in await behaviours(chaos_cluster)
    await runner_of(chaos_cluster).clean_up()
    assert await behaviours(chaos_cluster) == []
    halted = lines(chaos_cluster, "halted")[-1]
    assert halted.scenario == "payments-slow"
    row = await experiment_row(chaos_cluster, halted.experiment_id)
    assert (row["status"], row["healed_at"] is not None) == ("halted", True)


async def test_history_and_show_tell_what_the_journal_holds(
    chaos_cluster: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = chaos_cluster.place.folder
    result = await runner_of(chaos_cluster).run(short("broker-alarm"), 1)
    show_history(folder, as_json=True)
    last = json.loads(capsys.readouterr().out)[-1]
    assert (last["id"], last["verdict"]) == (result.experiment_id, "unknown")
    show_one(folder, result.experiment_id, as_json=False)
    assert "no RabbitMQ of its own" in capsys.readouterr().out
    with pytest.raises(NotFoundError):
        show_one(folder, "nothing", as_json=False)


async def test_the_list_says_what_cannot_be_run_and_why(chaos_cluster: Running) -> None:
    code, text = await ask("list", "--json", cluster=chaos_cluster)
    assert code == 0
    found = {one["name"]: one for one in json.loads(text)}
    assert found["swizzle"]["available"]
    assert "libfaketime" in found["clock-step"]["reasons"][0]
    assert "file system" in found["disk-full"]["reasons"][0]


def lines_of(cluster: Running, experiment_id: str) -> list[Line]:
    return [one for one in read(cluster.place.folder) if one.experiment_id == experiment_id]


async def experiment_row(cluster: Running, experiment_id: str) -> asyncpg.Record:
    connection = await asyncpg.connect(cluster.secrets.postgres_dsn)
    try:
        row = await connection.fetchrow(
            "SELECT * FROM chaos_experiment WHERE id = $1", experiment_id
        )
    finally:
        await connection.close()
    assert row is not None
    return row


async def behaviours(cluster: Running) -> list[str]:
    token = cluster.secrets.mock_admin_token
    shown = await tell_mock(cluster.part("payments").address, token, None)
    return [str(one["kind"]) for one in shown]


async def killed_runner(cluster: Running, name: str) -> None:
    """Run an experiment as a user does, and SIGKILL its runner once its fault has been injected."""
    before = len(lines(cluster, "injected"))
    process = subprocess.Popen(  # noqa: ASYNC220 - it is killed below, whatever the loop does
        command("run", name, cluster=cluster),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ(),
    )
    try:
        await until(lambda: len(lines(cluster, "injected")) > before, 40, "the fault is injected")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
