"""`odin up`, `down`, `ps`, `logs`, `demo`: the local cluster by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from odin.cli.shared import current
from odin.runtime.settings import load

from . import detached, logview, status
from .options import DemoSettings, Options
from .place import Place

Folder = Annotated[
    Path | None, typer.Option("--folder", help="Its data and logs; ODIN_FOLDER, else .odin.")
]


def up(  # noqa: PLR0913 - one argument per option
    *,
    engines: Annotated[int, typer.Option(help="How many engines.")] = 3,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 3,
    rate: Annotated[
        float, typer.Option("--load", help="Orders per second of a synthetic load; 0: none.")
    ] = 0.0,
    mocks: Annotated[bool, typer.Option(help="Run the mock services.")] = True,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running and return.")
    ] = False,
    proxies: Annotated[
        bool,
        typer.Option(envvar="ODIN_PROXIES", help="A proxy in every link, for `odin break cut`."),
    ] = False,
    folder: Folder = None,
) -> int:
    """Start a local cluster: servers, engines, mock services, workers.

    Examples: `odin up`, `odin up -d --engines 5`, `odin up --load 5`.
    """
    options = Options(
        engines=engines, workers=workers, load_rate=rate, mocks=mocks, proxies=proxies
    )
    place = Place.of(folder)
    if detach:
        return detached.start(options, place)
    return _attended(options, place)


def down(folder: Folder = None) -> int:
    """Stop the local cluster, and whatever a killed one has left running."""
    return detached.stop(Place.of(folder))


def ps(folder: Folder = None) -> int:
    """Show the local cluster's processes.

    Exit code 0 if it runs, 1 if it does not.
    """
    return status.show(Place.of(folder), as_json=current().as_json)


def logs(
    *,
    part: Annotated[
        str, typer.Argument(help="engine-1, worker-2, payments, postgres, …; all if none is named.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last lines of each part.")] = 50,
    folder: Folder = None,
) -> int:
    """Show the local cluster's logs, in order of time."""
    shown = logview.Wanted(part=part, follow=follow, count=lines, as_json=current().as_json)
    return logview.show(Place.of(folder), shown)


def demo(
    engines: Annotated[int, typer.Option(help="How many engines.")] = 3,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 3,
    folder: Folder = None,
) -> int:
    """Run the demo: three engines, three workers, mock services, five orders a second.

    ODIN_DEMO_SECONDS ends the load after that long, and verifies what became of it: exit code 0 if
    every accepted order finished in order and was charged once, else 1. ODIN_LOAD_RATE: the rate.
    """
    settings = load(DemoSettings)
    options = Options(
        engines=engines,
        workers=workers,
        load_rate=settings.load_rate,
        proxies=settings.proxies,
    )
    place = Place.of(folder)
    if not settings.demo_seconds:
        return _attended(options, place)
    from .demo import Timed  # noqa: PLC0415 - see _attended
    from .session import run_session  # noqa: PLC0415 - see _attended

    options = replace(options, seconds=settings.demo_seconds)
    return run_session(options, place, Timed(settings.demo_seconds, place.client_log))


def _attended(options: Options, place: Place) -> int:
    """Run a cluster until it is told to stop."""
    # Slow to import, with Postgres, aiohttp and all: `ps` and `logs` do without.
    from .demo import attend  # noqa: PLC0415 - see above
    from .session import run_session  # noqa: PLC0415 - see above

    return run_session(options, place, attend)
