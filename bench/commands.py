"""`odin bench`."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from odin._client.transport import addresses_of
from odin.cli.failing import EXIT_CHECK_FAILED
from odin.cli.output import chat, write, write_json, write_table
from odin.cli.shared import current
from odin.errors import InvalidArgumentError
from odin.runtime.clock import SystemClock

from . import machine
from .local import Cluster, local_cluster
from .measure import Bench, bench_of, measure_all
from .options import Options
from .results import Measurement, Report, Setup
from .table import headline, problems, rows_of
from .workloads import chosen

RESULTS: Final = Path(__file__).parent / "results"
FOLDER_VARIABLE: Final = "ODIN_FOLDER"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")


def bench(  # noqa: PLR0913 - one argument per option
    *,
    workloads: Annotated[str, typer.Option(help="Which, with commas: W1,W4. All if empty.")] = "",
    runs: Annotated[int, typer.Option(help="How often each is run.")] = 1,
    workflows: Annotated[
        int | None, typer.Option(help="Workflows per run, instead of the workload's own number.")
    ] = None,
    engines: Annotated[int, typer.Option(help="Engines to start.")] = 1,
    workers: Annotated[int, typer.Option(help="Workers to start.")] = 1,
    broker: Annotated[str, typer.Option(help="rabbitmq or embedded.")] = "rabbitmq",
    task_queue: Annotated[
        str, typer.Option(help="Of a cluster that runs already: which workers take part.")
    ] = "default",
    output: Annotated[Path | None, typer.Option(help="Write the report as JSON here, too.")] = None,
    save: Annotated[
        str, typer.Option(help="Keep the report as bench/results/DATE-NAME.json.")
    ] = "",
) -> int:
    r"""Measure throughput, latency and CPU of the standard workloads.

    Starts a cluster of its own and ends it; with --address it measures one that runs, whose CPU it
    cannot see. Exits with 5 if a single result was wrong or missing.

    \b
      odin bench                                     all workloads, once
      odin bench --workloads W1,W4 --runs 5          medians of five
      odin bench --engines 3 --workers 2 --broker embedded
      odin bench --address localhost:7300 --workloads W1
      odin bench --json > report.json
    """
    if save and not _NAME.fullmatch(save):
        raise InvalidArgumentError(f"--save {save!r}: letters, digits, dots and dashes, up to 60")
    shared = current()
    options = Options(
        workloads=chosen([one for one in workloads.split(",") if one.strip()], workflows),
        rounds=runs,
        engines=engines,
        workers=workers,
        broker=broker,
        address=shared.address,
        task_queue=task_queue,
        api_key=shared.api_key,
    )
    try:
        report = asyncio.run(_until_told(options))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    for path in _paths(report, output, save):
        _store(report, path)
    _show(report, as_json=shared.as_json)
    return 0 if report.is_correct else EXIT_CHECK_FAILED


async def _until_told(options: Options) -> Report:
    """Run the benchmark; SIGTERM ends it like Ctrl-C: with everything that it has started."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(options, dict(os.environ), chat)


async def run(options: Options, environ: dict[str, str], tell: Any) -> Report:  # noqa: ANN401 - a function of a line
    """Start what is to be started, measure, and return the report.

    Args:
        options: What to measure.
        environ: Names the servers, if any are to be used.
        tell: Told of progress, a line at a time.

    Raises:
        OdinError: A part could not be started, reached, or did not go on.
    """
    started = SystemClock().wall()
    with tempfile.TemporaryDirectory(prefix="odin-bench-") as logs:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(_cluster(options, environ, tell))
            bench = await stack.enter_async_context(bench_of(cluster, environ, Path(logs)))
            setup = await _setup(options, bench, started.isoformat(timespec="seconds"))
            measurements: list[Measurement] = await measure_all(bench, options, tell)
            tell("ending what was started")
    return Report(setup=setup, measurements=measurements)


@asynccontextmanager
async def _cluster(
    options: Options,
    environ: dict[str, str],
    tell: Any,  # noqa: ANN401 - a function of a line
) -> AsyncIterator[Cluster]:
    if options.address:
        addresses = list(addresses_of([options.address]))
        yield Cluster(addresses, options.task_queue, options.api_key)
        return
    root = Path(environ.get(FOLDER_VARIABLE) or ".odin")
    async with local_cluster(options, environ, root, tell) as cluster:
        yield cluster


async def _setup(options: Options, bench: Bench, started_at: str) -> Setup:
    cluster = bench.cluster
    found = await bench.engines.cluster()
    broker = str(found["broker"])
    notes = [f"tuned by {name}={value}" for name, value in cluster.tuning.items()]
    if cluster.unmeasured:
        notes.append(f"CPU of {', '.join(cluster.unmeasured)} is not measured: not ours")
    return Setup(
        command=shlex.join(["odin", "bench", *(one for one in sys.argv[1:] if one != "bench")]),
        started_at=started_at,
        engines=None if options.address else options.engines,
        workers=None if options.address else options.workers,
        broker=broker,
        machine=machine.machine(),
        versions=await machine.versions(cluster, bench.database),
        durability=await machine.durability(broker, bench.database),
        notes=notes,
    )


def _paths(report: Report, output: Path | None, save: str) -> list[Path]:
    found = [] if output is None else [output]
    if save:
        found.append(RESULTS / f"{report.setup.started_at[:10]}-{save}.json")
    return found


def _store(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    chat(f"written to {path}")


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        write_json(report)
    else:
        for line in headline(report):
            write(line)
        write_table(*rows_of(report))
    for problem in problems(report):
        chat(problem)
