"""The first acts of a term: sweep the inherited outbox, then bring back tasks that are nowhere.

A task that waits to be taken has an outbox row, or a message on its way, or a place in a worker's
inventory; after a takeover nobody knows which. So after the inventories, or a second, the new owner
pages through the runs with such a task and writes each one that has neither row nor place an outbox
row, paced; runs that a linked worker keeps warm are pushed instead.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, Protocol

from odin.core.decide_activity import decide_republish_activities
from odin.core.decide_workflow import decide_republish_task
from odin.errors import OdinError
from odin.runtime.clock import Clock

from .loader import Loader
from .run import Run
from .store.reads import FIRST_RUN_ID
from .term import Term

log = logging.getLogger(__name__)

INVENTORY_SECONDS: Final = 1.0
PAGE: Final = 100
PAGE_PAUSE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0


class TakeoverReads(Protocol):
    """The store as a takeover sees it."""

    async def scheduled_tasks(
        self, shard_id: int, *, after: str = ..., limit: int = 100
    ) -> list[str]:
        """Return the ids of open runs with a task that waits to be taken, in order."""
        ...


async def take_over(term: Term, reads: TakeoverReads, loader: Loader, clock: Clock) -> None:
    """Bring back what is nowhere, once the inherited rows are read and the inventories are in."""
    await clock.sleep(INVENTORY_SECONDS)
    await term.swept.wait()
    await _bring_back(term, reads, loader, clock)
    term.covered.clear()


async def _bring_back(term: Term, reads: TakeoverReads, loader: Loader, clock: Clock) -> None:
    after = FIRST_RUN_ID
    while not term.is_over:
        try:
            page = await reads.scheduled_tasks(term.shard_id, after=after, limit=PAGE)
        except OdinError as error:
            log.warning("takeover scan failed, trying again", extra={"detail": str(error)})
            await clock.sleep(RETRY_SECONDS)
            continue
        for run_id in page:
            loader.with_run(term, run_id, partial(_republish, term))
        if len(page) < PAGE:
            break
        after = page[-1]
        await clock.sleep(PAGE_PAUSE_SECONDS)


def _republish(term: Term, run: Run | None, error: OdinError | None) -> None:
    """Write an outbox row for each waiting task of the run that is nowhere."""
    if run is None or error is not None or not term.is_serving:
        return
    execution = run.execution
    task = execution.workflow_task
    if (
        run.claimant == ""
        and run.sent_number != task.number
        and task.state == "scheduled"
        and (execution.run_id, "w", task.number) not in term.covered
    ):
        decision = decide_republish_task(execution, term.moment(run))
        if decision is not None:
            if decision.push:
                run.claimant = run.warm
            term.write(run, decision)
    nowhere = frozenset(
        command_id
        for command_id, activity in run.execution.activities.items()
        if activity.state == "scheduled"
        and activity.scheduled_us < term.began_us
        and (execution.run_id, "a", command_id) not in term.covered
    )
    if nowhere:
        decision = decide_republish_activities(run.execution, nowhere, term.moment(run))
        if decision is not None:
            term.write(run, decision)
