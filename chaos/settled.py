"""The checker's word on a rotation, asked once all that it could have touched is over."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from .faults.books import Books, BooksClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odin.runtime.clock import Clock

    from .result import Result
    from .runner import Runner

# A scheduled verdict comes so long after its experiment began; here nothing begins in between.
SETTLE_SECONDS_MAX: Final = 420.0
ASK_EVERY_SECONDS: Final = 1.0


async def settled(books: Books, since: datetime, until: datetime, clock: Clock) -> int:
    """Wait until each run that began in a window has closed.

    Args:
        books: Postgres.
        since: Begin of the window.
        until: Its end.
        clock: Tells the time.

    Returns:
        How many are open after `SETTLE_SECONDS_MAX`; the checker says what is wrong there.
    """
    deadline = clock.boottime() + SETTLE_SECONDS_MAX
    while True:
        try:
            open_runs = await books.value("count_open", since, until)
        except BooksClosedError:
            open_runs = 1
        if not open_runs or clock.boottime() >= deadline:
            return open_runs
        await clock.sleep(ASK_EVERY_SECONDS)


async def judge_all(runner: Runner, results: Sequence[Result], tell: Callable[[str], None]) -> None:
    """Let the checker judge each experiment's own window, once their runs have closed.

    Args:
        runner: Ran them; each result takes the worse of the two verdicts.
        results: Of the experiments, in their order; those that never began are left as they are.
        tell: Is told what is waited for.
    """
    begun = [one for one in results if one.experiment_id and one.ended_at]
    if not begun:
        return
    tell("waiting until every run of this time has closed; then the checker judges each window")
    books = Books(runner.levers.secrets().postgres_dsn)
    first, last = (datetime.fromisoformat(at) for at in (begun[0].started_at, begun[-1].ended_at))
    if left := await settled(books, first, last, runner.clock):
        tell(f"{left} runs are still open")
    for number, one in enumerate(begun, start=1):
        await runner.ask_checker(one, until=datetime.fromisoformat(one.ended_at))
        tell(f"judged {number} of {len(begun)}: {one.scenario} {one.checker}")
