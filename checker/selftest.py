"""I25: the checker can say no. Rows of real runs are spoiled, and each rule must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from odin.core.definition import WorkflowInfo
from odin.core.events import HistoryEvent

from .evidence import Evidence, collected, judged
from .mutations import RUN_MUTATIONS
from .replay import definitions, failure_of
from .replaying import demo_modules
from .set_mutations import SET_MUTATIONS
from .spoiling import SCHEDULED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.definition import WorkflowDefinition
    from odin.proof.rows import RunRows

    from .spoiling import Mutation

MUTATIONS: Final[Sequence[Mutation]] = (*RUN_MUTATIONS, *SET_MUTATIONS)
SEEN: Final = "seen"
MISSED: Final = "missed"
NOT_TRIED: Final = "not tried"


class Tried(msgspec.Struct, frozen=True):
    """One mutation: seen, missed, or not tried because the rows hold nothing to spoil."""

    mutation: str
    invariant: str
    outcome: str
    words: str


async def self_test(dsn: str, since_us: int) -> list[Tried]:
    """Spoil the rows since an instant in every way, in memory.

    Raises:
        FailedPreconditionError: There are too many runs to hold them.
        OSError, asyncpg.PostgresError: The database cannot be reached or read.
    """
    evidence = await collected(dsn, since_us)
    return [*tried(evidence), replay_tried(evidence)]


def tried(evidence: Evidence) -> list[Tried]:
    """Return what became of each mutation but those of the replay."""
    before = judged(evidence)
    results = []
    for mutation in MUTATIONS:
        first = before[mutation.invariant]
        if first.verdict == mutation.verdict:
            words = f"it is {first.verdict} to begin with: {first.words}"
            results.append(Tried(mutation.name, mutation.invariant, NOT_TRIED, words))
            continue
        spoiled = mutation.spoil(evidence)
        if spoiled is None:
            words = "the rows hold nothing of the kind"
            results.append(Tried(mutation.name, mutation.invariant, NOT_TRIED, words))
            continue
        after = judged(spoiled)[mutation.invariant]
        outcome = SEEN if after.verdict == mutation.verdict else MISSED
        results.append(Tried(mutation.name, mutation.invariant, outcome, after.words))
    return results


def replay_tried(evidence: Evidence) -> Tried:
    """Return whether a replay notices a history that asks for another activity (I18)."""
    name = "a history of other commands"
    known = definitions(demo_modules())
    for rows in evidence.runs:
        run = rows.execution
        has_step = any(event.type == SCHEDULED for event in rows.events)
        if run is None or run.workflow_type not in known or not has_step:
            continue
        definition = known[run.workflow_type]
        if words := _replayed(definition, rows, spoiled=False):
            return Tried(name, "I18", NOT_TRIED, f"the replay fails to begin with: {words}")
        words = _replayed(definition, rows, spoiled=True)
        return Tried(name, "I18", SEEN if words else MISSED, words)
    return Tried(name, "I18", NOT_TRIED, "the rows hold nothing of the kind")


def _replayed(definition: WorkflowDefinition, rows: RunRows, *, spoiled: bool) -> str:
    """Return why the replay of a run fails; empty if it does not."""
    history = []
    for event in rows.events:
        attributes = dict(event.attributes)
        if spoiled and event.type == SCHEDULED:
            attributes["activity_type"] = "another"
        packed = msgspec.msgpack.encode(attributes)
        history.append(HistoryEvent(event.event_id, event.type, event.recorded_at_us, packed))
    run = rows.execution
    info = WorkflowInfo(
        "default" if run is None else run.namespace,
        "" if run is None else run.workflow_id,
        rows.run_id,
    )
    return failure_of(definition, info, history)
