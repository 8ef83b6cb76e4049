"""The schedule as a part of the demo, and engines whose clock can be stepped."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.options import DemoSettings, Options
from cluster.parts import START_ORDER, STOP_ORDER, Part, plan
from cluster.place import Place
from odin.runtime.settings import load


def planned(environ: dict[str, str], *, chaos: bool) -> dict[str, Part]:
    options = Options(engines=1, workers=1, chaos=chaos)
    ports = dict.fromkeys(("engine-1", "payments", "shipping", "drivers"), 1)
    parts = plan(options, Place(Path("/x")), ports, lambda _, to: f"http://{to}", environ)
    return {one.name: one for one in parts}


def test_the_schedule_is_a_part_only_where_it_is_wanted() -> None:
    assert "chaos" not in planned({}, chaos=False)
    part = planned({}, chaos=True)["chaos"]
    assert part.environ["ODIN_FOLDER"] == "/x"
    assert not any("postgres" in value for value in part.environ.values())
    assert Options().chaos is False


def test_the_schedule_begins_last_and_ends_first() -> None:
    assert START_ORDER[-1] == ("chaos",)
    assert STOP_ORDER[0] == "chaos"


def test_the_demo_has_chaos_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(DemoSettings).chaos
    monkeypatch.setenv("ODIN_CHAOS", "0")
    assert not load(DemoSettings).chaos


def test_only_engines_get_a_clock_that_can_be_stepped_and_spans_stay_true() -> None:
    parts = planned({"ODIN_FAKETIME": "/lib/faketime.so"}, chaos=True)
    with_it = [name for name, one in parts.items() if "LD_PRELOAD" in one.environ]
    assert with_it == ["engine-1"]
    environ = parts["engine-1"].environ
    assert environ["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    assert environ["FAKETIME_TIMESTAMP_FILE"] == "/x/faketime/engine-1"
    assert not any("LD_PRELOAD" in one.environ for one in planned({}, chaos=True).values())
