"""`odin chaos`: experiments by hand."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from odin.cli.shared import current
from odin.errors import InvalidArgumentError


class Action(StrEnum):
    """What `odin chaos` can do."""

    LIST = "list"
    RUN = "run"
    HALT = "halt"


def chaos(
    *,
    action: Annotated[Action, typer.Argument(help="list, run or halt.")] = Action.LIST,
    name: Annotated[str, typer.Argument(help="An experiment, for run.")] = "",
    seed: Annotated[int, typer.Option(help="Chooses the victims.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The cluster's; ODIN_FOLDER, else .odin.")
    ] = None,
) -> int:
    r"""Break the local cluster in known ways, and see whether it holds.

    \b
      odin chaos list                       every experiment, and whether it can be run here
      odin chaos run kill-engine-node       one of them, with a verdict
      odin chaos halt                       end whatever is under way, and heal everything

    Most of them want `odin up --proxies --load 5`. A verdict is pass, fail or unknown: unknown if
    the fault was not seen to bite. Exit code 0 for pass, 5 for fail, 4 for unknown.
    """
    from . import actions  # noqa: PLC0415 - slow to import, `--help` does without

    as_json = current().as_json
    match action:
        case Action.LIST:
            return actions.show_list(folder, as_json=as_json)
        case Action.RUN:
            if not name:
                raise InvalidArgumentError("which experiment? `odin chaos list` shows all")
            return actions.run_one(folder, name, seed, as_json=as_json)
        case Action.HALT:
            return actions.halt_now(folder, as_json=as_json)
