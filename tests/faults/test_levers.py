"""`odin break` and `odin heal` as a user calls them, on a cluster with proxies."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.breaking import Breaker
from cluster.commands import span_of
from cluster.undo import Broken, record, recorded
from odin.errors import InvalidArgumentError
from odin.runtime.clock import SystemClock
from tests.cluster.support import Running, ask, started, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("levers") / "odin"
    arguments = ("up", "--engines", "2", "--workers", "1", "--proxies")
    async with started(folder, *arguments, settings={"ODIN_BROKER": "embedded"}) as running:
        yield running


async def broken(cluster: Running, *arguments: str) -> str:
    code, text = await ask("break", *arguments, folder=cluster.place.folder)
    assert code == 0, text
    return text


async def healed(cluster: Running) -> None:
    code, text = await ask("heal", folder=cluster.place.folder)
    assert (code, recorded(cluster.place)) == (0, []), text


def run_state(cluster: Running, name: str) -> str:
    """The kernel's word for the state of a part's process: S, R, T, …"""
    pid = cluster.part(name).pid
    assert pid is not None
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_frozen_part_goes_on_when_its_time_is_over(cluster: Running) -> None:
    await broken(cluster, "freeze", "worker-1", "--for", "60s")
    assert run_state(cluster, "worker-1") == "T"
    await healed(cluster)
    text = await broken(cluster, "freeze", "worker-1", "--for", "1s")
    assert "heals in 1 s, or now with `odin heal worker-1`" in text
    await until(lambda: run_state(cluster, "worker-1") != "T", 10)
    await until(lambda: recorded(cluster.place) == [], 5)


async def test_heal_undoes_what_concerns_the_named_part_alone(cluster: Running) -> None:
    await broken(cluster, "freeze", "engine-1", "--for", "60s")
    await broken(cluster, "cut", "worker-1", "--to", "engine-2", "--for", "60s")
    code, text = await ask("heal", "engine-1", folder=cluster.place.folder)
    assert (code, "froze engine-1" in text, "blackhole" in text) == (0, True, False)
    assert run_state(cluster, "engine-1") != "T"
    assert [one.kind for one in recorded(cluster.place)] == ["links"]
    text = await broken(cluster, "--list")
    assert "blackhole on worker-1 → engine-2" in text
    code, text = await ask("heal", folder=cluster.place.folder)
    assert (code, "blackhole" in text) == (0, True)
    assert recorded(cluster.place) == []


async def test_a_killed_part_comes_back(cluster: Running) -> None:
    before = cluster.part("engine-2")
    await broken(cluster, "kill", "engine-2")
    await until(lambda: cluster.part("engine-2").restarts == before.restarts + 1, 10)
    await until(lambda: cluster.part("engine-2").phase == "running", 40)
    assert cluster.part("engine-2").pid != before.pid


async def test_a_cut_of_all_engines_is_listed_and_heals_by_itself(cluster: Running) -> None:
    cut = ("cut", "engines", "--to", "postgres", "--how", "refuse", "--for")
    await broken(cluster, *cut, "60s")
    text = await broken(cluster, "--list", "--json")
    assert "engine-1" in text
    assert "engine-2" in text
    await healed(cluster)
    await broken(cluster, *cut, "1s")
    await until(lambda: recorded(cluster.place) == [], 10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kill", "nobody"), "there is no part 'nobody'"),
        (("kill",), "whom?"),
        (("cut", "engine-1", "--to", "nobody"), "no link of engine-1 fits"),
        (("cut", "engine-1", "--how", "nonsense"), "no such fault"),
        (("slow", "engine-1"), "--delay"),
        (("freeze", "engine-1", "--for", "11m"), "up to 600 s"),
        (("freeze", "engine-1", "--for", "soon"), "not a time"),
        (("alarm",), "there is no part 'rabbitmq'"),
    ],
)
async def test_what_cannot_be_broken_is_refused_with_a_reason(
    cluster: Running, arguments: tuple[str, ...], said: str
) -> None:
    code, text = await ask("break", *arguments, folder=cluster.place.folder)
    assert code != 0
    assert said in text
    assert recorded(cluster.place) == []


async def test_a_cluster_with_a_frozen_engine_ends_in_time(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "odin"
    settings = {"ODIN_BROKER": "embedded"}
    async with started(folder, "up", "--engines", "1", "--workers", "1", settings=settings) as one:
        await broken(one, "freeze", "engines", "--for", "60s")
        one.process.send_signal(signal.SIGTERM)
        assert await one.ended(12) in (0, 1)
        assert "could not heal" not in one.output()
        assert recorded(one.place) == []


async def test_without_proxies_a_cut_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "odin"
    settings = {"ODIN_BROKER": "embedded"}
    arguments = ("up", "--engines", "1", "--workers", "0", "--no-mocks")
    async with started(folder, *arguments, settings=settings):
        code, text = await ask("break", "cut", "engine-1", folder=folder)
    assert code != 0
    assert "odin up --proxies" in text


async def test_a_process_that_only_has_the_number_of_a_frozen_one_is_left_alone(
    cluster: Running,
) -> None:
    record(
        cluster.place,
        Broken(
            id="old",
            kind="frozen",
            parts=["engine-9"],
            what="froze engine-9",
            until=0.0,
            processes=[(os.getpid(), "another life")],
        ),
    )
    healed = await Breaker(cluster.place, SystemClock()).heal()
    assert recorded(cluster.place) == []
    assert len(healed) <= 1


def test_times_are_read_as_people_write_them() -> None:
    assert [span_of(one) for one in ("", "15", "1.5s", "500ms", "2m")] == [0, 15, 1.5, 0.5, 120]
    for wrong in ("s", "-1s", "1h", "soon"):
        with pytest.raises(InvalidArgumentError):
            span_of(wrong)
