"""The table of a report: one column per workload, medians with smallest and largest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from .figures import spread
from .results import Measurement, Report

NOT_MEASURED: Final = "not measured"
NOT_APPLICABLE: Final = "-"
KINDS: Final = ("engine", "worker", "postgres", "rabbitmq", "valkey", "client")
CLIENT_SHARE_MAX: Final = 0.7
SMALL_DIGITS: Final = 2

Read: TypeAlias = Callable[[Measurement], float | None]


class Line(NamedTuple):
    """One line: what it says, how a value is read, its digits, and whether absence is plain."""

    label: str
    read: Read
    digits: int = 1
    if_absent: str = NOT_MEASURED


def rows_of(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the columns' names and the rows."""
    names = list(dict.fromkeys(one.workload for one in report.measurements))
    groups = [[one for one in report.measurements if one.workload == name] for name in names]
    rows = []
    for line in _lines(report.measurements):
        cells = [_cell(line, group) for group in groups]
        if any(cell != NOT_APPLICABLE for cell in cells):
            rows.append([line.label, *cells])
    rows.append(["results", *(_verdict(group) for group in groups)])
    return ["", *names], rows


def headline(report: Report) -> list[str]:
    """Return the lines above the table."""
    setup = report.setup
    rounds = max((one.round for one in report.measurements), default=0)
    size = (
        "a cluster that was running already"
        if setup.engines is None
        else f"{setup.engines} engine(s), {setup.workers} worker(s)"
    )
    return [
        f"{setup.started_at}  {setup.command}",
        f"{size}, broker {setup.broker}; median (min-max) of {rounds} run(s)",
        "machine: " + _pairs(setup.machine),
        "versions: " + _pairs(setup.versions),
        "durability: " + (_pairs(setup.durability) or NOT_MEASURED),
        *setup.notes,
        *_warnings(report),
    ]


def problems(report: Report) -> list[str]:
    """Return what went wrong, a line each."""
    return [
        f"{one.workload}, round {one.round}: {problem}"
        for one in report.measurements
        for problem in one.problems
    ]


def _lines(measurements: Sequence[Measurement]) -> list[Line]:
    """Return the lines; those of kinds of process that took no part are left out."""
    known = {kind for one in measurements for kind in (*(one.cpu_seconds or ()), *one.unmeasured)}
    kinds = [kind for kind in KINDS if kind in known]
    return [
        Line("workflows/s", lambda one: one.workflows_per_second),
        Line("steps/s", lambda one: one.steps_per_second, 0),
        Line("p50 ms", _of("latency", "p50_ms")),
        Line("p95 ms", _of("latency", "p95_ms")),
        Line("p99 ms", _of("latency", "p99_ms")),
        Line("first 100 steps, ms each", lambda one: one.first_step_ms, 2, NOT_APPLICABLE),
        Line("last 100 steps, ms each", lambda one: one.last_step_ms, 2, NOT_APPLICABLE),
        Line("CPU s per 1000 workflows", lambda one: one.per_1000(), 2),
        *(Line(f"  {kind}", _per_1000_of(kind), 2) for kind in kinds),
        Line("events/workflow", _each("database", "events")),
        Line("groups/workflow", _each("database", "groups"), 2),
        Line("write transactions/workflow", _each("database", "write_transactions"), 2),
        Line("WAL bytes/workflow", _each("database", "wal_bytes"), 0),
        Line("outbox rows/workflow", _each("database", "outbox_rows"), 2),
        Line("messages/workflow", _each("engine", "messages"), 2),
        Line("decisions/workflow", _each("engine", "decisions")),
        Line("client CPU, share of a core", lambda one: one.client_cpu_share, 2),
        Line("CPU s of others meanwhile", lambda one: one.other_cpu_seconds),
        Line("spin_ms before", lambda one: one.spin_ms[0]),
        Line("spin_ms after", lambda one: one.spin_ms[1]),
    ]


def _per_1000_of(kind: str) -> Read:
    return lambda one: one.per_1000(kind)


def _of(part: str, name: str) -> Read:
    """Return what reads a figure of one part of a measurement; None if the part is missing."""

    def read(one: Measurement) -> float | None:
        found: float | None = getattr(getattr(one, part), name, None)
        return found

    return read


def _each(part: str, name: str) -> Read:
    """Return what reads the figure per workflow."""
    whole = _of(part, name)

    def read(one: Measurement) -> float | None:
        value = whole(one)
        return None if value is None else value / one.workflows

    return read


def _cell(line: Line, group: Sequence[Measurement]) -> str:
    values = [value for one in group if (value := line.read(one)) is not None]
    if not values:
        return line.if_absent
    found = spread(values)
    digits = line.digits if found.median >= 1 else max(line.digits, SMALL_DIGITS)
    middle = f"{found.median:.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({found.min:.{digits}f}-{found.max:.{digits}f})"


def _verdict(group: Sequence[Measurement]) -> str:
    wrong, failed = sum(one.wrong for one in group), sum(one.failed for one in group)
    if wrong or failed:
        return f"{wrong} wrong, {failed} failed"
    return f"all {sum(one.workflows for one in group)} right"


def _warnings(report: Report) -> list[str]:
    found = []
    for one in report.measurements:
        where = f"{one.workload}, round {one.round}"
        if one.client_cpu_share > CLIENT_SHARE_MAX:
            found.append(f"NOTE {where}: the load generator may have been the limit")
        if one.engine is not None and one.engine.refused:
            found.append(f"NOTE {where}: admission refused {one.engine.refused} starts")
    return found


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
