"""What a benchmark yields, as it stands in result files. None always means: not measured."""

from __future__ import annotations

from typing import Final

import msgspec

from .figures import Latencies

FORMAT: Final = 1


class DatabaseFigures(msgspec.Struct, frozen=True):
    """What a workload did to Postgres, from Postgres itself.

    Attributes:
        events: Rows of history.
        groups: Transactions that wrote history, each a group of decisions committed together.
        write_transactions: All transactions that wrote, of the whole server.
        outbox_rows: Tasks that went through the outbox.
        wal_bytes: Write-ahead log, of the whole server.
    """

    events: int
    groups: int
    write_transactions: int
    outbox_rows: int
    wal_bytes: int


class EngineFigures(msgspec.Struct, frozen=True):
    """Sums over the engines' own counters.

    Attributes:
        decisions: Decisions committed.
        refused: Starts that admission refused, and the client repeated.
        messages: Messages to the broker, or None where the engines do not tell.
    """

    decisions: int
    refused: int
    messages: int | None


class LoadFigures(msgspec.Struct, frozen=True):
    """What the load generator saw.

    Attributes:
        wall_seconds: From the first start to the last result.
        latency_seconds: Of each workflow, from its start to its result.
        cpu_seconds: The generator's own, of all its threads.
        wrong: Results that were not the expected one.
        failed: Workflows without a result.
        problems: The first few of both, in words.
        completed_us: When each step of the last workflow completed; only for long runs.
    """

    wall_seconds: float
    latency_seconds: list[float]
    cpu_seconds: float
    wrong: int = 0
    failed: int = 0
    problems: list[str] = []
    completed_us: list[int] = []


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one workload.

    Attributes:
        workload: Its name.
        round: Which repetition, from 1.
        workflows: How many were run.
        steps: Activities per workflow.
        wall_seconds: From the first start to the last result.
        latency: Start to result, as the client saw it.
        wrong: Results that were not the expected one.
        failed: Workflows without a result.
        problems: The first few of both, in words.
        cpu_seconds: User and system time by kind of process, until the outbox was empty again.
        unmeasured: Kinds of process that took part and whose CPU cannot be told.
        client_cpu_share: The load generator's CPU seconds per second: at 1 it is the limit.
        other_cpu_seconds: What the rest of the machine used meanwhile: the noise.
        spin_ms: The calibration loop before and after.
        first_step_ms: Mean time per step among the first 100 of a long run.
        last_step_ms: The same among the last 100.
    """

    workload: str
    round: int
    workflows: int
    steps: int
    wall_seconds: float
    latency: Latencies | None
    wrong: int
    failed: int
    problems: list[str]
    cpu_seconds: dict[str, float] | None
    unmeasured: tuple[str, ...]
    client_cpu_share: float
    other_cpu_seconds: float | None
    spin_ms: tuple[float, float]
    database: DatabaseFigures | None
    engine: EngineFigures | None
    first_step_ms: float | None = None
    last_step_ms: float | None = None

    @property
    def workflows_per_second(self) -> float:
        """Throughput."""
        return self.workflows / self.wall_seconds

    @property
    def steps_per_second(self) -> float:
        """Throughput in activities."""
        return self.workflows_per_second * self.steps

    @property
    def is_correct(self) -> bool:
        """Whether every workflow returned what it had to."""
        return self.wrong == 0 and self.failed == 0

    def per_1000(self, kind: str | None = None) -> float | None:
        """Return CPU seconds per 1000 workflows, of one kind of process or of all."""
        if self.cpu_seconds is None or (kind is None and self.unmeasured):
            return None
        if kind is not None and kind not in self.cpu_seconds:
            return None
        used = sum(self.cpu_seconds.values()) if kind is None else self.cpu_seconds[kind]
        return used / self.workflows * 1_000


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, where and how."""

    command: str
    started_at: str
    engines: int | None
    workers: int | None
    broker: str
    machine: dict[str, str]
    versions: dict[str, str]
    durability: dict[str, str]
    notes: list[str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one benchmark."""

    format: int = FORMAT
    setup: Setup
    measurements: list[Measurement]

    @property
    def is_correct(self) -> bool:
        """Whether every workflow of every run returned what it had to."""
        return all(one.is_correct for one in self.measurements)
