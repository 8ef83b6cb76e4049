"""`odin chaos replay`: an experiment again, as it was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from odin.cli.output import chat, write_json, write_table
from odin.errors import InvalidArgumentError

from .actions import EXIT_OF, attended
from .reaching import Where, runner_of
from .replay import recorded, side_by_side
from .telling import told_line

if TYPE_CHECKING:
    from .result import Result


def replay_one(where: Where, experiment_id: str, *, as_json: bool) -> int:
    """Run a recorded experiment again and show both verdicts; return the exit code of the new one.

    Raises:
        OdinError: there is none of this id, or it cannot be run as it was.
    """
    if not experiment_id:
        raise InvalidArgumentError("which experiment? `odin chaos history` shows the ids")
    runner = runner_of(where, lambda line: None if as_json else chat(told_line(line)))

    async def both() -> tuple[Result, Result]:
        first = await recorded(runner.look().books, experiment_id)
        return first, await runner.replay(first)

    first, second = attended(both())
    if as_json:
        write_json({"first": msgspec.to_builtins(first), "replay": msgspec.to_builtins(second)})
    else:
        write_table(("", "FIRST", "REPLAY"), side_by_side(first, second))
    return EXIT_OF[second.verdict]
