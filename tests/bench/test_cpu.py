import os
import subprocess
import sys
import time
from pathlib import Path

from bench.cpu import Entry, Snapshot, children_of, difference, snapshot, spin_ms, used_by

BURN = """
import subprocess, sys, time
while time.process_time() < 0.2: pass
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print("done", flush=True)
    sys.stdin.read()
"""


def test_a_process_counts_for_the_nearest_root_above_it() -> None:
    table = {
        1: Entry(0, 100.0),
        10: Entry(1, 1.0),  # bench
        20: Entry(10, 2.0),  # servers, not a root of their own
        21: Entry(20, 4.0),  # postgres
        22: Entry(21, 8.0),  # its backend
        30: Entry(10, 16.0),  # engine
        99: Entry(1, 32.0),  # somebody else
    }
    roots = {"bench": [10], "postgres": [21], "engine": [30]}
    assert used_by(roots, table) == {"bench": 3.0, "postgres": 12.0, "engine": 16.0}


def test_a_kind_of_which_nothing_runs_has_used_nothing() -> None:
    assert used_by({"worker": [5]}, {1: Entry(0, 1.0)}) == {"worker": 0.0}


def test_what_nobody_of_ours_used_others_have() -> None:
    before = Snapshot({"engine": 1.0, "worker": 2.0}, 10.0)
    after = Snapshot({"engine": 1.5, "worker": 2.5}, 13.0)
    assert difference(before, after) == ({"engine": 0.5, "worker": 0.5}, 2.0)


def test_reaped_children_are_in_their_parents_account(tmp_path: Path) -> None:
    script = tmp_path / "burn.py"
    script.write_text(BURN, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = snapshot({"burn": [process.pid]}).used["burn"]
        assert process.stdin is not None
        process.stdin.close()
    assert 0.35 <= used < 3.0


def test_our_own_work_is_in_our_own_tree_and_not_among_others() -> None:
    roots = {"bench": [os.getpid()]}
    before = snapshot(roots)
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    used, _ = difference(before, snapshot(roots))
    assert used["bench"] >= 0.17


def test_children_are_found_with_their_command_lines() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        assert "sys.stdin.read" in children_of(os.getpid())[process.pid]


def test_the_calibration_takes_some_time() -> None:
    assert 0.1 < spin_ms() < 1_000
