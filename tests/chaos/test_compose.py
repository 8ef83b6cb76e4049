"""Faults of containers: what is asked of a model of the Docker API, and what is refused and why.

The model (`docker_model`) answers as the API is documented; `make compose-chaos` breaks real ones.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.actions import halt_now, run_one
from chaos.compose import COMPOSE_SCENARIOS, REFUSED, compose_faults, missing, refusals
from chaos.faults.base import Bite, Fault
from chaos.faults.compose_levers import ComposeLevers, NotInContainersError, project_of
from chaos.faults.dice import Dice
from chaos.faults.docker import Docker
from chaos.faults.docker_address import address_of, parsed
from chaos.faults.project import kind_of, name_of, reached
from chaos.faults.stage import NoClusterError, Stage
from chaos.faults.undo import Undo, restored
from chaos.guard import guarded
from chaos.healing import replayed
from chaos.journal import read
from chaos.plan import scenario_of
from chaos.reaching import Where
from chaos.running import Running, exclusive, read_running, write_running
from odin.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from odin.runtime.services import checkout
from tests.cluster.support import environ

from .docker_model import PROJECT, TOKEN, Engine, modelled
from .support import CLOCK

GONE = (2**22 + 1, "no such process")


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[Engine]:
    async with modelled(tmp_path / "docker.sock") as engine:
        yield engine


@pytest.fixture
async def levers(model: Engine, tmp_path: Path) -> ComposeLevers:
    assert model.boxes
    docker = Docker(parsed(f"unix://{tmp_path / 'docker.sock'}"))
    found = ComposeLevers(docker, PROJECT, tmp_path / "odin")
    await found.refresh()
    return found


def staged(levers: ComposeLevers) -> Stage:
    return Stage(levers, CLOCK, Dice("compose"), "t", 1.0)


def fault_named(name: str, levers: ComposeLevers) -> Fault:
    return compose_faults(levers)[name](staged(levers))


async def bitten(fault: Fault) -> Bite:
    await fault.prepare()
    await fault.inject()
    return await fault.verify()


# --- pure -----------------------------------------------------------------------------------------


def test_the_engine_is_spoken_to_on_this_machine_only() -> None:
    assert address_of({}).socket == "/var/run/docker.sock"
    assert address_of({"DOCKER_HOST": "unix:///run/x.sock"}).socket == "/run/x.sock"
    assert parsed("tcp://127.0.0.1:99").base == "http://127.0.0.1:99"
    assert parsed("tcp://localhost").base == "http://localhost:2375"
    assert parsed("tcp://[::1]:5").base == "http://[::1]:5"


@pytest.mark.parametrize(
    "text",
    [
        *("tcp://10.0.0.5:2375", "tcp://example.org:2375", "tcp://0.0.0.0:2375", "ssh://root@host"),
        *("unix://relative", "http://127.0.0.1:1", "npipe:////./pipe/docker", "", "tcp://"),
        *("tcp://127.0.0.1.example.org:2375", "tcp://127.0.0.1:x", "tcp://u@127.0.0.1:1"),
    ],
)
def test_no_other_machine_and_nothing_strange_is_an_engine(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="DOCKER_HOST"):
        parsed(text)


def test_an_engine_that_wants_tls_is_not_spoken_to_without() -> None:
    with pytest.raises(InvalidArgumentError, match="TLS"):
        address_of({"DOCKER_HOST": "tcp://127.0.0.1:2376", "DOCKER_TLS_VERIFY": "1"})


def test_services_are_parts_by_their_names() -> None:
    kinds = {name: kind_of(name) for name in ("engine-1", "worker", "postgres", "payments", "web")}
    assert list(kinds.values()) == ["engine", "worker", "server", "mock", "other"]
    label = "com.docker.compose."
    assert name_of({f"{label}service": "worker", f"{label}container-number": "1"}) == "worker"
    assert name_of({f"{label}service": "worker", f"{label}container-number": "3"}) == "worker.3"


def test_a_servers_name_becomes_its_address_and_the_password_stays() -> None:
    dsn = "postgresql://odin:p%40ss@postgres:5432/odin?x=1"
    assert (
        reached(dsn, {"postgres": "10.0.0.2"}) == "postgresql://odin:p%40ss@10.0.0.2:5432/odin?x=1"
    )
    assert reached(dsn, {}) == dsn


def test_every_experiment_can_be_run_in_containers_or_says_what_it_needs(
    levers: ComposeLevers,
) -> None:
    faults = compose_faults(levers)
    assert not set(faults) & set(REFUSED)
    for one in COMPOSE_SCENARIOS:
        for name in one.faults:
            assert (name in faults) != (name in REFUSED), name
        assert len(refusals(one)) <= 1, one.name
    assert refusals(scenario_of("swizzle", COMPOSE_SCENARIOS)) == [
        "needs the proxies of a local cluster"
    ]
    can = {one.name for one in COMPOSE_SCENARIOS if not refusals(one)}
    assert can >= {"kill-engine-node", "pause-engine-node", "broker-down", "valkey-down"}
    assert can >= {"postgres-restart", "rolling-deploy", "cut-engine-node", "kill-all-engines"}
    assert can >= {"kill-worker", "burst", "poison"}


# --- against the model ----------------------------------------------------------------------------


async def test_a_project_is_seen_by_its_labels_and_shows_no_secret(levers: ComposeLevers) -> None:
    stage = staged(levers)
    assert stage.names("engine") == ["engine-1", "engine-2"]
    assert [one.phase for one in stage.state.parts if one.kind == "migrate"] == ["done"]
    assert len(stage.state.engines) == 2
    assert stage.state.engines[0].startswith("http://127.0.0.1:")
    secrets = levers.secrets()
    assert secrets.postgres_dsn == "postgresql://odin:hunter2@127.0.0.9:5432/odin"
    assert levers.api_key() == TOKEN
    shown = f"{secrets!r} {await levers.inspected()!r} {stage.state!r}"
    assert "hunter2" not in shown
    assert TOKEN not in shown


async def test_the_only_project_with_engines_is_meant_and_of_two_neither(
    levers: ComposeLevers, model: Engine
) -> None:
    model.add("web", project="blog")
    assert await project_of(levers.docker, "") == PROJECT
    model.add("engine-1", number="7", project="other")
    with pytest.raises(InvalidArgumentError, match="other, shop"):
        await project_of(levers.docker, "")
    assert await project_of(levers.docker, "other") == "other"
    model.boxes.clear()
    with pytest.raises(NoClusterError, match="docker compose up"):
        await project_of(levers.docker, "")
    with pytest.raises(NoClusterError, match="publishes its API"):
        await levers.refresh()


async def test_no_engine_at_the_socket_is_told_as_such(tmp_path: Path) -> None:
    docker = Docker(parsed(f"unix://{tmp_path / 'nothing.sock'}"))
    with pytest.raises(UnavailableError, match=r"no Docker engine answers at unix://.*nothing"):
        await docker.containers()


async def test_refusals_of_the_engine_keep_their_kind(levers: ComposeLevers) -> None:
    with pytest.raises(NotFoundError, match="No such container"):
        await levers.docker.do("kill", "nobody", signal="SIGKILL")
    with pytest.raises(FailedPreconditionError, match="not paused"):
        await levers.docker.do("unpause", levers.part("valkey").container)
    await levers.docker.do("start", levers.part("valkey").container)  # runs already: 304


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("kill engine", "exited"),
        ("pause engine", "paused"),
        ("cut engine", "running, in no network"),
    ],
)
async def test_a_struck_engine_answers_nobody_and_is_what_it_was_when_healed(
    levers: ComposeLevers, model: Engine, name: str, state: str
) -> None:
    fault = fault_named(name, levers)
    bite = await bitten(fault)
    assert bite.is_seen, bite
    assert bite.evidence["states"] == {fault.target: state}
    assert isinstance(bite.evidence["answers"][fault.target], str)
    await fault.heal()
    await fault.heal()
    box = model.of(fault.target)
    assert box.answers
    assert box.networks == {"shop_odin": [fault.target]}
    await levers.refresh()
    assert levers.part(fault.target).is_alive


@pytest.mark.parametrize("name", ["kill engine", "pause engine", "kill a worker"])
async def test_an_engine_that_does_as_it_is_told_only_in_words_was_not_bitten(
    levers: ComposeLevers, model: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.faults.containers.STATE_SECONDS", 0.5)
    model.is_deaf = True
    assert not (await bitten(fault_named(name, levers))).is_seen


async def test_a_state_alone_is_no_proof_while_somebody_answers(
    levers: ComposeLevers, model: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.docker_model.Box.answers", True)
    fault = fault_named("pause engine", levers)
    bite = await bitten(fault)
    assert bite.evidence["states"] == {fault.target: "paused"}
    assert not bite.is_seen
    assert model.calls == [f"pause {fault.target}"]


async def test_what_takes_everything_away_is_brief_and_a_deploy_goes_one_by_one(
    levers: ComposeLevers, model: Engine
) -> None:
    assert (await bitten(fault_named("kill all engines", levers))).is_seen
    assert [model.of(name).status for name in ("engine-1", "engine-2")] == ["running", "running"]
    model.calls.clear()
    await levers.refresh()
    bite = await bitten(fault_named("roll", levers))
    assert (bite.is_seen, set(bite.evidence["seconds until back"])) == (
        True,
        {"engine-1", "engine-2", "worker-1"},
    )
    assert model.calls == ["restart engine-1", "restart engine-2", "restart worker-1"]


async def test_a_lever_of_a_local_cluster_is_refused_by_name(levers: ComposeLevers) -> None:
    with pytest.raises(NotInContainersError, match="alarm"):
        await levers.breaker.alarm(1.0)
    with pytest.raises(NotInContainersError):
        levers.link_fault(mode="delay")
    assert levers.breaker.broken() == []
    poor = staged(levers)
    scenario = scenario_of("broker-down", COMPOSE_SCENARIOS)
    assert missing(scenario, poor) == []


def test_an_experiment_that_containers_cannot_give_is_refused_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nothing.sock'}")
    with pytest.raises(NotInContainersError, match=r"swizzle .* needs the proxies"):
        run_one(Where(tmp_path, "shop"), "swizzle", 0, as_json=False)


# --- what a dead runner leaves --------------------------------------------------------------------


def left_behind(levers: ComposeLevers, pid: int) -> Running:
    """A record as a runner leaves that was killed while valkey stood still."""
    step = Undo(
        kind="container",
        action="unpause",
        address=levers.docker.address.text,
        container=levers.part("valkey").container,
    )
    running = Running(
        experiment_id="x-1",
        scenario="valkey-down",
        seed=1,
        pid=pid,
        fingerprint="long ago",
        started_at="2026-01-01T00:00:00+00:00",
        undo=[step],
    )
    levers.folder.mkdir(parents=True, exist_ok=True)
    write_running(levers.folder, running)
    return running


async def test_a_container_that_was_removed_needs_no_healing(
    levers: ComposeLevers, model: Engine
) -> None:
    running = left_behind(levers, GONE[0])
    model.boxes.pop(levers.part("valkey").container)
    assert await replayed(levers, None) == []
    assert read_running(levers.folder) is None
    write_running(levers.folder, running)
    model.boxes.clear()  # as by `docker compose down`
    assert await replayed(levers, None) == []
    assert read_running(levers.folder) is None


async def test_what_cannot_be_undone_stays_on_record(levers: ComposeLevers, tmp_path: Path) -> None:
    step = left_behind(levers, GONE[0]).undo[0]
    (tmp_path / "docker.sock").unlink()
    wrong = await replayed(levers, None)
    assert any("no Docker engine answers" in one for one in wrong)
    assert read_running(levers.folder) is not None
    with pytest.raises(UnavailableError):
        await restored(step)


async def test_a_bare_halt_heals_every_project_of_the_folder(
    levers: ComposeLevers, model: Engine, tmp_path: Path
) -> None:
    left_behind(levers, GONE[0])
    model.of("valkey").status = "paused"
    code = await asyncio.to_thread(halt_now, Where(tmp_path / "odin"), as_json=True)
    assert (code, model.of("valkey").status) == (0, "running")
    assert read_running(levers.folder) is None


async def test_a_guard_heals_when_its_runner_is_gone_and_ends(
    levers: ComposeLevers, model: Engine, tmp_path: Path
) -> None:
    left_behind(levers, GONE[0])
    model.of("valkey").status = "paused"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "chaos.guard", "--project", PROJECT),
        *("--folder", str(tmp_path / "odin"), "--pid", str(GONE[0])),
        *("--mark", GONE[1], "--seconds", "600"),
        env={**environ(), "DOCKER_HOST": levers.docker.address.text},
        cwd=checkout(),
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        _, said = await process.communicate()
    assert (process.returncode, model.of("valkey").status) == (0, "running"), said
    assert read_running(levers.folder) is None
    assert [one.phase for one in read(levers.folder)] == ["halted"]


async def test_a_guard_tries_again_until_the_engine_of_containers_answers(
    levers: ComposeLevers, model: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.guard.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("chaos.guard.AGAIN_SECONDS", 0.01)
    left_behind(levers, GONE[0])
    model.of("valkey").status = "paused"
    socket, aside = tmp_path / "docker.sock", tmp_path / "aside.sock"
    socket.rename(aside)
    async with asyncio.TaskGroup() as group:
        guarding = group.create_task(guarded(levers, CLOCK, GONE, 600.0))
        async with asyncio.timeout(10):
            while not read(levers.folder):
                await asyncio.sleep(0.01)
        aside.rename(socket)
    assert guarding.result() == ["x-1"]
    assert model.of("valkey").status == "running"
    wrongs = [bool(one.details["wrong"]) for one in read(levers.folder)]
    assert wrongs == [True, False]


async def test_a_guard_waits_for_a_runner_that_lives_and_heals_when_it_is_late(
    levers: ComposeLevers, model: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.guard.LOOK_SECONDS", 0.02)
    runner = (1, levers.fingerprint(1))
    left_behind(levers, 1)
    model.of("valkey").status = "paused"
    with exclusive(levers.folder):  # it lives, and is stuck
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(guarded(levers, CLOCK, runner, 600.0))
            late = await guarded(levers, CLOCK, runner, 0.0)
    assert late == ["x-1"]
    assert model.of("valkey").status == "running"
    assert waiting.result() == []
