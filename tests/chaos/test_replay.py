"""An experiment that is run again: as it was drawn, linked to the first one, or refused."""

from __future__ import annotations

import json

import asyncpg
import msgspec
import pytest

from chaos.faults.books import Books
from chaos.faults.catalogue import parameters_of
from chaos.faults.dice import Dice, TargetGoneError
from chaos.faults.links import some_links
from chaos.halt import halt, resume
from chaos.replay import changed, recorded, side_by_side
from chaos.result import Draw, Result
from chaos.scenarios import SCENARIOS
from odin.errors import NotFoundError
from tests.cluster.support import Running

from .support import CLOCK, ask, lines, runner_of, short

ENGINES = ["engine-1", "engine-2", "engine-3", "engine-4"]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe only for a moment before and after."""
    monkeypatch.setattr("chaos.run.BEFORE_PROBE_SECONDS", 0.5)
    monkeypatch.setattr("chaos.run.AFTER_PROBE_SECONDS", 0.5)


def test_what_was_drawn_is_drawn_again_whatever_the_seed_would_choose_now() -> None:
    for drawn in ENGINES:
        assert Dice(1, {"engine": drawn}).choose("engine", ENGINES) == drawn
    rolled = {Dice(seed).choose("engine", ENGINES) for seed in range(30)}
    assert rolled == set(ENGINES)


def test_what_is_gone_is_told_by_name_and_nothing_else_is_struck_in_its_place() -> None:
    dice = Dice(1, {"engine": "engine-4", "links": ["a → b", "a → c"]})
    with pytest.raises(TargetGoneError, match=r"engine-4 .* there is engine-1, engine-2"):
        dice.choose("engine", ENGINES[:2])
    with pytest.raises(TargetGoneError, match="a → c was struck"):
        dice.draw("links", lambda _: ["a → b"], {"a → b": 1})
    with pytest.raises(TargetGoneError, match="which worker"):
        dice.choose("worker", ["worker-1"])


def test_the_record_of_a_draw_comes_back_from_json_as_it_was() -> None:
    for scenario in SCENARIOS:
        draw = Draw(
            plan=scenario, parameters=parameters_of(scenario.faults), values={"engine": "engine-1"}
        )
        assert msgspec.json.decode(msgspec.json.encode(draw), type=Draw) == draw


def test_a_fault_that_has_other_parameters_now_is_named() -> None:
    then = {"slow payments": {"kind": "slow", "delay_ms": 2_000}}
    assert changed(then, then) == []
    now = {"slow payments": {"kind": "slow", "delay_ms": 1}}
    assert changed(then, now) == ["slow payments: delay_ms was 2000, is 1"]
    assert changed(then, {}) != []
    assert changed({"burst": {}}, {"burst": {"per_second": 3}}) != []


def test_links_to_stop_are_never_two_to_postgres_or_to_the_broker() -> None:
    class Named:
        def __init__(self, part: str, dependency: str) -> None:
            self.part, self.dependency = part, dependency

    there = {
        f"{part} → {to}": Named(part, to)
        for part in ENGINES
        for to in ("postgres", "broker", "valkey")
    }
    found = Dice(5).draw("links", lambda dice: some_links(there, dice), there)
    for server in ("postgres", "broker"):
        assert sum(there[one].dependency == server for one in found) == 1
    assert len(found) == 6


async def test_the_same_victim_is_struck_for_as_long_and_the_record_names_the_first_one(
    chaos_cluster: Running,
) -> None:
    runner = runner_of(chaos_cluster)
    before = await runner.run(short("cut-worker-from-engine"), 3)
    first = await recorded(Books(chaos_cluster.secrets.postgres_dsn), before.experiment_id)
    assert first.draw is not None
    assert first.draw == before.draw
    assert first.draw.plan.hold_seconds == 1.0
    # The record of another draw: what is struck is what it says, and not what the seed chooses.
    [other] = {"worker-1", "worker-2"} - {first.draw.values["worker"]}
    first.draw = msgspec.structs.replace(first.draw, values={"worker": other})
    second = await runner.replay(first)
    assert second.verdict == "pass", second
    assert second.targets[0].startswith(other)
    assert second.draw == first.draw
    row = await recorded(Books(chaos_cluster.secrets.postgres_dsn), second.experiment_id)
    assert (row.replay_of, row.seed) == (first.experiment_id, 3)
    assert lines(chaos_cluster, "armed")[-1].details["replay_of"] == first.experiment_id


async def test_the_command_shows_both_verdicts_or_says_why_it_cannot(
    chaos_cluster: Running,
) -> None:
    first = await runner_of(chaos_cluster).run(short("payments-failing"), 1)
    code, text = await ask("replay", first.experiment_id, "--json", cluster=chaos_cluster)
    both = json.loads(text)
    assert (code, both["replay"]["verdict"]) == (0, "pass"), text
    assert both["replay"]["replay_of"] == both["first"]["experiment_id"] == first.experiment_id
    assert both["replay"]["draw"] == both["first"]["draw"]
    rows = [msgspec.convert(both[name], Result) for name in ("first", "replay")]
    assert ("verdict", "pass", "pass") in side_by_side(rows[0], rows[1])

    code, text = await ask("replay", "nothing", cluster=chaos_cluster)
    assert (code, "NO_EXPERIMENT" in text) == (4, True), text

    await halt(runner_of(chaos_cluster).levers, CLOCK, None)
    code, text = await ask("replay", first.experiment_id, cluster=chaos_cluster)
    assert (code, "odin chaos resume" in text) == (4, True), text
    resume(chaos_cluster.place.folder)


SPOILED: list[tuple[str, object, str]] = [
    ("draw,values,worker", "worker-9", "worker-9 was struck then"),
    ("draw,plan,faults", ["slow payments"], "TARGET_GONE"),
    ("draw,parameters", {"cut worker from engines": {"cuts": 9}}, "cuts was 9, is None"),
    ("draw", None, "NOT_DRAWN"),
]


async def test_what_cannot_be_run_as_it_was_is_refused_and_nothing_is_broken(
    chaos_cluster: Running,
) -> None:
    first = await runner_of(chaos_cluster).run(short("cut-worker-from-engine"), 1)
    before = len(lines(chaos_cluster, "armed"))
    connection = await asyncpg.connect(chaos_cluster.secrets.postgres_dsn)
    try:
        kept = await connection.fetchval(
            "SELECT evidence FROM chaos_experiment WHERE id = $1", first.experiment_id
        )
        for path, value, said in SPOILED:
            await connection.execute(
                "UPDATE chaos_experiment SET evidence = jsonb_set($2::jsonb, $3::text[], $4)"
                " WHERE id = $1",
                *(first.experiment_id, kept, path.split(","), json.dumps(value)),
            )
            code, text = await ask("replay", first.experiment_id, cluster=chaos_cluster)
            assert (code, said in text) == (4, True), text
    finally:
        await connection.close()
    assert len(lines(chaos_cluster, "armed")) == before


async def test_an_unknown_id_is_not_found(chaos_cluster: Running) -> None:
    with pytest.raises(NotFoundError):
        await recorded(Books(chaos_cluster.secrets.postgres_dsn), "nothing")
