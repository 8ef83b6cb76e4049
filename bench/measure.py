"""One benchmark from the first workload to the last: marks before, load, marks after."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from odin.runtime.services import environment_of, module_of

from . import cpu, engines
from .database import Database, Marks, database_of
from .engines import Engines
from .figures import edge_step_ms, latencies
from .load import Order
from .local import Cluster
from .options import Options
from .processes import Child, child
from .results import LoadFigures, Measurement
from .workloads import PAYLOAD, Workload

CLIENT: Final = "client"
OURSELVES: Final = "bench"
WORKFLOW_SECONDS: Final = 120.0
PHASE_SECONDS: Final = 600.0
LOAD_GRACE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that a measurement needs.

    Attributes:
        cluster: What is measured.
        load: The load generator's process.
        engines: The engines' own figures.
        database: The cluster's Postgres, if it may be read.
    """

    cluster: Cluster
    load: Child
    engines: Engines
    database: Database | None

    @property
    def roots(self) -> dict[str, list[int]]:
        """The trees whose CPU is told, the load generator's and our own with them."""
        return {**self.cluster.roots, CLIENT: [self.load.pid], OURSELVES: [os.getpid()]}


@asynccontextmanager
async def bench_of(
    cluster: Cluster, environ: Mapping[str, str], folder: Path
) -> AsyncIterator[Bench]:
    """Start the load generator and open what the figures are read from."""
    plain = {name: value for name, value in environ.items() if not name.startswith("ODIN_")}
    command = [sys.executable, "-P", "-m", f"{module_of('bench')}.load"]
    async with AsyncExitStack() as stack:
        load = await stack.enter_async_context(
            child("load", command, environment_of(plain), folder, LOAD_GRACE_SECONDS, talks=True)
        )
        opened = await stack.enter_async_context(engines.session())
        asked = Engines(opened, cluster.addresses, cluster.api_key)
        database = None
        if cluster.dsn:
            database = await stack.enter_async_context(database_of(cluster.dsn))
        yield Bench(cluster, load, asked, database)


async def measure_all(
    bench: Bench, options: Options, tell: Callable[[str], None]
) -> list[Measurement]:
    """Run every workload once per round, round by round, so that drift hits all alike.

    Raises:
        UnavailableError: A process that is needed has ended, or does not answer.
    """
    found = []
    for number in range(1, options.rounds + 1):
        for workload in options.workloads:
            tell(f"round {number} of {options.rounds}: {workload.name} ({workload.title})")
            one = await measure(bench, workload, number)
            tell(
                f"  {one.workflows_per_second:.1f} workflows/s"
                + ("" if one.is_correct else f", {one.wrong} wrong, {one.failed} failed")
            )
            found.append(one)
    return found


async def measure(bench: Bench, workload: Workload, number: int) -> Measurement:
    """Run one workload once.

    Raises:
        UnavailableError: A process that is needed has ended, or does not answer.
    """
    await bench.load.tell(msgspec.json.encode(_order(bench.cluster, workload)) + b"\n")
    await bench.load.line(PHASE_SECONDS)
    marks = await _marks(bench)
    counters = await bench.engines.counters()
    spin_before = cpu.spin_ms()
    before = cpu.snapshot(bench.roots)
    await bench.load.tell(b"go\n")
    line = await bench.load.line(PHASE_SECONDS)
    if bench.database is not None:
        await bench.database.settle()
    used, others = cpu.difference(before, cpu.snapshot(bench.roots))
    spin_after = cpu.spin_ms()
    bench.cluster.check()
    after = await _marks(bench)
    told = engines.figures(counters, await bench.engines.counters())
    load = msgspec.json.decode(line, type=LoadFigures)
    used.pop(OURSELVES)
    edges = edge_step_ms(load.completed_us) if load.completed_us else (None, None)
    is_ours = bool(bench.cluster.roots)
    return Measurement(
        workload=workload.name,
        round=number,
        workflows=workload.count,
        steps=workload.steps,
        wall_seconds=load.wall_seconds,
        latency=latencies(load.latency_seconds) if load.latency_seconds else None,
        wrong=load.wrong,
        failed=load.failed,
        problems=load.problems,
        cpu_seconds=used if is_ours else None,
        unmeasured=bench.cluster.unmeasured,
        client_cpu_share=load.cpu_seconds / load.wall_seconds,
        other_cpu_seconds=others if is_ours else None,
        spin_ms=(spin_before, spin_after),
        database=None
        if bench.database is None or marks is None or after is None
        else await bench.database.figures(marks, after),
        engine=told,
        first_step_ms=edges[0],
        last_step_ms=edges[1],
    )


async def _marks(bench: Bench) -> Marks | None:
    return None if bench.database is None else await bench.database.marks()


def _order(cluster: Cluster, workload: Workload) -> Order:
    return Order(
        addresses=cluster.addresses,
        task_queue=cluster.task_queue,
        workflow=workload.workflow,
        steps=workload.steps,
        payload=PAYLOAD,
        count=workload.count,
        in_flight=workload.in_flight,
        warmup_count=workload.warmup_count,
        prefix=f"bench-{workload.name.lower()}-{secrets.token_hex(4)}",
        timeout_seconds=WORKFLOW_SECONDS,
        api_key=cluster.api_key,
        shows_steps=workload.shows_growth,
    )
