"""`odin chaos`: experiments by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
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
    REPLAY = "replay"
    HALT = "halt"
    RESUME = "resume"
    HISTORY = "history"
    SHOW = "show"
    ROTATE = "rotate"


def chaos(  # noqa: PLR0913 - one argument per option
    *,
    action: Annotated[
        Action, typer.Argument(help="list, run, replay, halt, resume, history, show or rotate.")
    ] = Action.LIST,
    name: Annotated[
        str, typer.Argument(help="For run: which one; for show and replay: the id.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Chooses the victims, and the order.")] = 0,
    fast: Annotated[
        bool, typer.Option("--fast", help="Rotate back to back instead of every ten minutes.")
    ] = False,
    only: Annotated[str, typer.Option(help="Of rotate: only these, with commas.")] = "",
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The cluster's; ODIN_FOLDER, else .odin.")
    ] = None,
    compose: Annotated[
        bool, typer.Option("--compose", help="The system in containers, by the Docker API.")
    ] = False,
    project: Annotated[
        str, typer.Option(help="The compose project, if there are several; implies --compose.")
    ] = "",
) -> int:
    r"""Break a cluster in known ways, and see whether it holds.

    \b
      odin chaos list                       every experiment, and whether it can be run here
      odin chaos run kill-engine-node       one of them, with a verdict
      odin chaos halt                       end whatever is under way, heal, stop the schedule
      odin chaos resume                     let the schedule go on
      odin chaos history                    what was run, and what came of it
      odin chaos show ID                    every line of one experiment
      odin chaos replay ID                  the same again, and both verdicts side by side
      odin chaos rotate --fast              all of them back to back, and a table
      odin chaos run broker-down --compose  in containers; all of the above take --compose

    Most of them want `odin up --proxies --load 5`. A verdict is pass, fail or unknown: unknown if
    the fault was not seen to bite. Exit code 0 for pass, 5 for fail, 4 for unknown.
    """
    # The broker's client tells of an alarm as well: of one that was brought about just now.
    for client in ("aio_pika", "aiormq"):
        logging.getLogger(client).addHandler(logging.NullHandler())
    from . import actions, again, past, reaching  # noqa: PLC0415 - slow to import, `--help` does without

    as_json = current().as_json
    names = [one for one in only.split(",") if one]
    where = reaching.Where(folder, project if compose or project else None)
    ways: dict[Action, Callable[[], int]] = {
        Action.LIST: lambda: actions.show_list(where, as_json=as_json),
        Action.RUN: lambda: actions.run_one(where, name, seed, as_json=as_json),
        Action.REPLAY: lambda: again.replay_one(where, name, as_json=as_json),
        Action.HALT: lambda: actions.halt_now(where, as_json=as_json),
        Action.RESUME: lambda: actions.resume_now(where),
        Action.HISTORY: lambda: past.show_history(
            reaching.levers_of(where).folder, as_json=as_json
        ),
        Action.SHOW: lambda: past.show_one(reaching.levers_of(where).folder, name, as_json=as_json),
        Action.ROTATE: lambda: actions.rotate_all(where, seed, names, as_json=as_json),
    }
    if action is Action.ROTATE and not fast:
        raise InvalidArgumentError(
            "the slow rotation is `python -m chaos`; all at once: `odin chaos rotate --fast`"
        )
    return ways[action]()
