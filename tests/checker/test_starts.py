"""I7 by its words: what becomes of a start, against what its client was told."""

from __future__ import annotations

import pytest

from checker.invariants.rows import CallRow, ClientRow, RunRef, Told
from checker.invariants.starts import Starts
from odin.proof.rows import RequestRow


def call(outcome: str, run_id: str = "") -> CallRow:
    return CallRow(
        client="c",
        call_id="q",
        kind="start",
        request_id="q",
        run_id=run_id,
        outcome=outcome,
        began=1,
        ended=2,
        details={},
    )


def request(run_id: str = "r", created_at_us: int = 100) -> RequestRow:
    return RequestRow(
        shard_id=1,
        namespace="default",
        workflow_id="w",
        request_id="q",
        kind="start",
        run_id=run_id,
        event_id=1,
        body_hash=b"",
        created_at_us=created_at_us,
    )


def run(run_id: str = "r", first: str = "r", *, has_parent: bool = False) -> RunRef:
    return RunRef(run_id=run_id, first_run_id=first, status="completed", has_parent=has_parent)


@pytest.mark.parametrize(
    ("calls", "requests", "runs", "expected"),
    [
        ([call("ok", "r")], [request()], [run()], ""),
        ([call("ok", "r")], [request()], [run(), run("next")], ""),  # continued as new
        ([call("unknown")], [request()], [run()], ""),
        ([call("unknown")], [], [], ""),
        ([call("fail")], [], [], ""),
        ([call("ok")], [request(created_at_us=1)], [], ""),  # gone by retention
        ([call("ok")], [request()], [run(), run("child", "child", has_parent=True)], ""),
        ([call("ok", "r")], [], [], "1 x an accepted start that left no trace"),
        ([call("ok", "r")], [request()], [], "1 x an accepted start whose run is gone"),
        ([call("unknown")], [request()], [], "1 x an accepted start whose run is gone"),
        ([call("ok", "x")], [request()], [run()], "1 x an accepted start that led to another run"),
        ([call("fail")], [request()], [run()], "1 x a refused start that ran"),
        (
            [call("ok", "r")],
            [request()],
            [run(), run("x", "x")],
            "1 x a run that no accepted start led to",
        ),
    ],
)
def test_a_start_is_held_against_what_was_told_of_it(
    calls: list[CallRow], requests: list[RequestRow], runs: list[RunRef], expected: str
) -> None:
    starts = Starts(kept_us=50)
    starts.add(
        Told(
            namespace="default",
            workflow_id="w",
            calls=tuple(calls),
            requests=tuple(requests),
            runs=tuple(runs),
        )
    )
    assert starts.finding().words == expected


@pytest.mark.parametrize(("count", "expected"), [(10, "valid"), (9, "unknown")])
def test_a_log_with_a_hole_proves_nothing(count: int, expected: str) -> None:
    starts = Starts()
    starts.add(Told(namespace="default", workflow_id="w", calls=(call("unknown"),)))
    starts.add_client(ClientRow(client="c", first_line=11, last_line=20, line_count=count))
    assert starts.finding().verdict == expected
