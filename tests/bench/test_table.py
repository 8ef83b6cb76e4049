from typing import Any

from bench.figures import Latencies
from bench.results import DatabaseFigures, EngineFigures, Measurement, Report, Setup
from bench.table import headline, problems, rows_of


def measured(**changes: object) -> Measurement:
    values: dict[str, Any] = {
        "workload": "W1",
        "round": 1,
        "workflows": 100,
        "steps": 5,
        "wall_seconds": 2.0,
        "latency": Latencies(1.0, 2.0, 3.0, 4.0),
        "wrong": 0,
        "failed": 0,
        "problems": [],
        "cpu_seconds": {"engine": 0.2, "postgres": 0.1},
        "unmeasured": (),
        "client_cpu_share": 0.1,
        "other_cpu_seconds": 0.5,
        "spin_ms": (5.0, 6.0),
        "database": DatabaseFigures(1_800, 70, 80, 600, 500_000),
        "engine": EngineFigures(1_700, 0, 300),
    }
    return Measurement(**(values | changes))


def report(*measurements: Measurement) -> Report:
    setup = Setup(
        command="odin bench",
        started_at="2026-01-01T00:00:00+00:00",
        engines=1,
        workers=1,
        broker="rabbitmq",
        machine={"cores": "2"},
        versions={"python": "3.11"},
        durability={"fsync": "on"},
        notes=[],
    )
    return Report(setup=setup, measurements=list(measurements))


def cells(*measurements: Measurement) -> dict[str, str]:
    return {row[0].strip(): row[1] for row in rows_of(report(*measurements))[1]}


def test_one_run_is_shown_as_it_is() -> None:
    found = cells(measured())
    assert found["workflows/s"] == "50.0"
    assert found["steps/s"] == "250"
    assert found["CPU s per 1000 workflows"] == "3.00"
    assert found["engine"] == "2.00"
    assert found["events/workflow"] == "18.0"
    assert found["messages/workflow"] == "3.00"
    assert found["results"] == "all 100 right"


def test_several_runs_are_shown_as_median_smallest_and_largest() -> None:
    found = cells(*(measured(round=n, wall_seconds=w) for n, w in enumerate((1.0, 2.0, 4.0), 1)))
    assert found["workflows/s"] == "50.0 (25.0-100.0)"


def test_small_values_keep_their_digits() -> None:
    assert cells(measured(workflows=1, wall_seconds=8.0))["workflows/s"] == "0.12"


def test_what_was_not_measured_is_said_and_never_zero() -> None:
    found = cells(
        measured(cpu_seconds=None, other_cpu_seconds=None, database=None, engine=None, latency=None)
    )
    for label in ("CPU s per 1000 workflows", "CPU s of others meanwhile", "events/workflow"):
        assert found[label] == "not measured"
    assert found["p50 ms"] == "not measured"


def test_a_sum_without_one_of_its_parts_is_not_shown() -> None:
    found = cells(measured(unmeasured=("rabbitmq",)))
    assert found["CPU s per 1000 workflows"] == "not measured"
    assert (found["engine"], found["rabbitmq"]) == ("2.00", "not measured")


def test_wrong_results_stand_in_the_table_and_below_it() -> None:
    one = measured(wrong=1, failed=2, problems=["w-7: returned 4 instead of 5"])
    assert cells(one)["results"] == "1 wrong, 2 failed"
    assert problems(report(one)) == ["W1, round 1: w-7: returned 4 instead of 5"]
    assert not report(one).is_correct
    assert report(measured()).is_correct


def test_a_load_generator_at_its_limit_is_told() -> None:
    assert not [line for line in headline(report(measured())) if line.startswith("NOTE")]
    (told,) = (
        line for line in headline(report(measured(client_cpu_share=0.9))) if line.startswith("NOTE")
    )
    assert "load generator" in told


def test_workloads_stand_side_by_side() -> None:
    columns, rows = rows_of(report(measured(), measured(workload="W4")))
    assert columns == ["", "W1", "W4"]
    assert all(len(row) == 3 for row in rows)
