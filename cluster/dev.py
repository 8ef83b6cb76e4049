"""`odin dev`: one process with the engine and the author's worker, for writing workflows.

    main thread    engine, embedded broker; Postgres and Valkey as child processes
    worker thread  one per loading of the author's code, with an event loop of its own

The worker has a thread of its own, so that code that blocks its loop does not stop the engine. When
a file changes, the new code is imported on a new thread; only if that succeeds does the old worker
stop and the new one begin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odin.cli.shared import current

from .dev_options import DevOptions


def dev(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE[:OBJECT]]…", help="What to host; none: an engine alone."),
    ] = None,
    *,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Where it listens; 7300 or a free one if absent."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin with an empty database: delete what was kept.")
    ] = False,
    reload: Annotated[bool, typer.Option(help="Load the code anew when a file changes.")] = True,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="For its data; ODIN_FOLDER, else .odin.")
    ] = None,
) -> int:
    r"""Run workflows on this machine while they are written: one command, nothing to set up.

    It brings Postgres and Valkey, an engine, and a worker with what the modules hold. Data is kept
    in dev below the folder, and open runs go on at the next start. Not for production.

    \b
      odin dev shop                everything decorated in shop.py
      odin dev shop:app --fresh    a list, a Worker or an object, with an empty database
      odin run Order --input 7 --wait      in another terminal: no address is needed
    """
    from .dev_session import run_dev  # noqa: PLC0415 - slow to import: --help does without

    options = DevOptions(
        targets=tuple(targets or ()),
        root=Path.cwd(),
        port=port,
        fresh=fresh,
        reload=reload,
        folder=folder,
        namespace=current().namespace,
        token=current().api_key,
    )
    return run_dev(options)
