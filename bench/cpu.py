"""CPU time of process trees, from /proc: user and system, ended and reaped children included.

A tree is taken at the moment of reading: a backend of Postgres that begins later is in it, and one
that has ended is in its parent's account of reaped children. A clock tick is 10 ms, so a process
that does little is told coarsely; over a workload the error is below one percent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

_TICK_SECONDS: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_PPID, _TIMES = 1, slice(11, 15)  # fields after the command: see proc(5), which counts from 1
_IDLE_FIELDS: Final = (3, 4)  # idle and iowait in the first line of /proc/stat
_OWN_FIELDS: Final = 7  # time stolen by the host, and guest time, are nobody's work here
_SPIN_ROUNDS: Final = 200_000
_SPIN_REPEATS: Final = 7


class Entry(NamedTuple):
    """One process: its parent, and its CPU seconds with those of its reaped children."""

    parent: int
    seconds: float


class Snapshot(NamedTuple):
    """CPU seconds used so far.

    Attributes:
        used: By kind of process.
        busy: By the whole machine.
    """

    used: dict[str, float]
    busy: float


def snapshot(roots: Mapping[str, Collection[int]]) -> Snapshot:
    """Return what the trees below `roots` (kind → process ids) have used so far."""
    return Snapshot(used_by(roots, dict(_processes())), _busy_seconds())


def used_by(roots: Mapping[str, Collection[int]], table: Mapping[int, Entry]) -> dict[str, float]:
    """Return the CPU seconds of the trees below `roots`.

    A process counts for the nearest root above it (or that it is), so that kinds never overlap.
    """
    kind_of = {pid: kind for kind, pids in roots.items() for pid in pids}
    used = dict.fromkeys(roots, 0.0)
    for pid, entry in table.items():
        at: int | None = pid
        while at is not None and at not in kind_of:
            at = table[at].parent if at in table else None
        if at is not None:
            used[kind_of[at]] += entry.seconds
    return used


def difference(before: Snapshot, after: Snapshot) -> tuple[dict[str, float], float]:
    """Return what each kind used between two snapshots, and what the rest of the machine used."""
    used = {kind: after.used[kind] - seconds for kind, seconds in before.used.items()}
    others = after.busy - before.busy - sum(used.values())
    return used, max(0.0, others)


def children_of(pid: int) -> dict[int, str]:
    """Return the direct children of a process with their command lines."""
    found = {}
    for child, entry in _processes():
        if entry.parent == pid:
            found[child] = _command_line(child)
    return found


def spin_ms() -> float:
    """Return how long a fixed loop of Python takes in CPU time: how fast the machine is now."""
    return median(_spin_once() for _ in range(_SPIN_REPEATS))


def _spin_once() -> float:
    began = time.thread_time_ns()
    total = 0
    for number in range(_SPIN_ROUNDS):
        total += number
    return (time.thread_time_ns() - began) / 1e6


def _processes() -> Iterator[tuple[int, Entry]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            line = (folder / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        # The command stands in parentheses and may hold anything; fields count after it.
        fields = line.rpartition(")")[2].split()
        ticks = sum(int(field) for field in fields[_TIMES])
        yield int(folder.name), Entry(int(fields[_PPID]), ticks * _TICK_SECONDS)


def _busy_seconds() -> float:
    with Path("/proc/stat").open(encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1 : 1 + _OWN_FIELDS]]
    return (sum(fields) - sum(fields[place] for place in _IDLE_FIELDS)) * _TICK_SECONDS


def _command_line(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
