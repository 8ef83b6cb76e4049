"""The judge of a simulated world: rows in, complaints out. It shares no code with what it judges.

Each function is one claim. What clients were told is compared with what the tables hold.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odin.core.events import AttemptRecord
    from tests.simulation.evidence import CallRow, EventRow, Evidence, RunRow

EARLY_US: Final = 400_000
QUICK_SECONDS: Final = 1.5
CLOSINGS: Final = {
    "workflow_execution_completed": "completed",
    "workflow_execution_failed": "failed",
    "workflow_execution_canceled": "canceled",
    "workflow_execution_terminated": "terminated",
    "workflow_execution_timed_out": "timed_out",
    "workflow_execution_continued_as_new": "continued_as_new",
}
BY_CODE: Final = frozenset(CLOSINGS) - {
    "workflow_execution_terminated",
    "workflow_execution_timed_out",
}
BEGINS: Final = {"activity_task_scheduled": "activity", "timer_started": "timer"}
ENDS: Final = {
    "activity_task_completed": "activity",
    "activity_task_failed": "activity",
    "activity_task_timed_out": "activity",
    "activity_task_canceled": "activity",
    "timer_fired": "timer",
    "timer_canceled": "timer",
}


def histories(evidence: Evidence) -> dict[str, list[EventRow]]:
    """Return the events of each run in order."""
    found: dict[str, list[EventRow]] = defaultdict(list)
    for row in sorted(evidence.events, key=lambda row: row.event_id):
        found[row.run_id].append(row)
    return found


def dense(evidence: Evidence) -> Iterator[str]:
    """Events of a run are numbered 1 to n, and its row says n + 1."""
    found = histories(evidence)
    for run in evidence.runs:
        ids = [row.event_id for row in found[run.run_id]]
        if ids != list(range(1, run.next_event_id)):
            yield f"{run.workflow_id} {run.run_id}: events {ids}, the row says {run.next_event_id}"
    for run_id in found.keys() - {run.run_id for run in evidence.runs}:
        yield f"events of {run_id}, which has no row"


def shaped(evidence: Evidence) -> Iterator[str]:
    """The first event starts the run, one closes it, that is the last, and the row agrees."""
    found = histories(evidence)
    for run in evidence.runs:
        types = [row.type for row in found[run.run_id]]
        if not types or types[0] != "workflow_execution_started":
            yield f"{run.run_id} begins with {types[:1]}"
        closings = [at for at, kind in enumerate(types) if kind in CLOSINGS]
        status = CLOSINGS[types[closings[0]]] if closings else "running"
        if closings not in ([], [len(types) - 1]) or status != run.status:
            yield f"{run.run_id}: closed at {closings} of {len(types)}, the row says {run.status}"


def resolved_once(evidence: Evidence) -> Iterator[str]:
    """What was begun ends at most once, after it began.

    The cancellation of a timer is a command: one that crosses the firing is recorded and does
    nothing.
    """
    for run_id, rows in histories(evidence).items():
        open_: dict[tuple[str, int], int] = {}
        ended: set[tuple[str, int]] = set()
        for row in rows:
            if row.type in BEGINS:
                open_[BEGINS[row.type], row.event.command_id] = row.event_id
            elif row.type in ENDS:
                key = (ENDS[row.type], row.event.command_id)
                crossed = row.type == "timer_canceled" and key in ended
                if open_.pop(key, None) is None and not crossed:
                    yield f"{run_id} event {row.event_id}: {key} was not open"
                ended.add(key)


def fenced(evidence: Evidence) -> Iterator[str]:
    """Each event was written under the range that was the shard's at its commit."""
    began: dict[int, dict[int, int]] = defaultdict(dict)
    for term in evidence.terms:
        if term.happening in {"acquired", "bumped"}:
            began[term.shard_id][term.range_id] = term.txid
    for row in evidence.events:
        ranges = began[row.shard_id]
        if row.range_id not in ranges or ranges[row.range_id] >= row.txid:
            yield f"event {row.event_id} of {row.run_id}: range {row.range_id} had not begun"
        later = [at for range_id, at in ranges.items() if range_id > row.range_id]
        if later and min(later) < row.txid:
            yield f"event {row.event_id} of {row.run_id} was written after its range {row.range_id}"


def ranges_grow(evidence: Evidence) -> Iterator[str]:
    """The ranges of a shard count up by one, and one process begins each."""
    begun = Counter(
        (term.shard_id, term.range_id)
        for term in evidence.terms
        if term.happening in {"acquired", "bumped"}
    )
    for key, times in begun.items():
        if times > 1:
            yield f"shard and range {key} began {times} times"
    for shard_id in {shard for shard, _ in begun}:
        ranges = sorted(range_id for shard, range_id in begun if shard == shard_id)
        if ranges != list(range(1, len(ranges) + 1)):
            yield f"shard {shard_id} had the ranges {ranges}"


def one_open_run(evidence: Evidence) -> Iterator[str]:
    """A workflow id has at most one open run, and each closing by continue-as-new a successor."""
    still = Counter(run.workflow_id for run in evidence.runs if run.status == "running")
    for workflow_id, count in still.items():
        if count > 1:
            yield f"{workflow_id} has {count} open runs"
    by_id = {run.run_id: run for run in evidence.runs}
    for row in evidence.events:
        if row.type == "workflow_execution_continued_as_new":
            successor = by_id.get(row.event.new_run_id)
            if successor is None:
                yield f"{row.run_id} has no successor"


def _acknowledged(evidence: Evidence, kind: str) -> list[CallRow]:
    return [
        call
        for call in evidence.calls
        if type(call.request).__name__ == kind and call.answer is not None
    ]


def starts_kept(evidence: Evidence) -> Iterator[str]:
    """An acknowledged start has one run; a workflow id has one chain."""
    runs = {run.run_id: run for run in evidence.runs}
    for call in _acknowledged(evidence, "StartWorkflow"):
        if call.answer.run_id not in runs:
            yield f"start of {call.request.workflow_id}: run {call.answer.run_id} is not there"
    chains: dict[str, set[str]] = defaultdict(set)
    for run in evidence.runs:
        chains[run.workflow_id].add(run.first_run_id)
    for workflow_id, firsts in chains.items():
        if len(firsts) > 1:
            yield f"{workflow_id} was started {len(firsts)} times"


def _chain(evidence: Evidence, workflow_id: str) -> list[RunRow]:
    return sorted(
        (run for run in evidence.runs if run.workflow_id == workflow_id),
        key=lambda run: min(
            (
                row.txid * 1_000 + (row.event_id > 1)
                for row in evidence.events
                if row.run_id == run.run_id
            ),
            default=0,
        ),
    )


def signals_kept(evidence: Evidence) -> Iterator[str]:
    """An acknowledged signal stands once in the chain, at its place, in order of the answers."""
    found = histories(evidence)
    asked: dict[str, list[CallRow]] = defaultdict(list)
    for call in _acknowledged(evidence, "SignalWorkflow"):
        asked[call.request.workflow_id].append(call)
    for workflow_id, calls in asked.items():
        stored = [
            (row.event.request_id, run.run_id, row.event_id)
            for run in _chain(evidence, workflow_id)
            for row in found[run.run_id]
            if row.type == "workflow_execution_signaled"
        ]
        told = [
            (getattr(call.request, "request_id", ""), call.answer.run_id, call.answer.event_id)
            for call in calls
        ]
        if stored != told:
            yield f"signals of {workflow_id}: told {told}, stored {stored}"


def seen_before_closing(evidence: Evidence) -> Iterator[str]:
    """A run that its code closed had seen every message that it had accepted."""
    for run_id, rows in histories(evidence).items():
        if not rows or rows[-1].type not in BY_CODE:
            continue
        seen = max(
            (row.event.seen for row in rows if row.type == "workflow_task_completed"), default=0
        )
        for row in rows:
            if row.type == "workflow_execution_signaled" and row.event_id > seen:
                yield f"{run_id} closed without having seen event {row.event_id}"


def tasks_in_turn(evidence: Evidence) -> Iterator[str]:
    """Workflow tasks are completed in turn, and none has seen less than the one before."""
    for run_id, rows in histories(evidence).items():
        done = [row.event for row in rows if row.type == "workflow_task_completed"]
        numbers = [event.task_number for event in done]
        seen = [event.seen for event in done]
        times = [event.time_us for event in done]
        if numbers != sorted(set(numbers)) or seen != sorted(seen) or times != sorted(times):
            yield f"{run_id}: tasks {numbers} saw {seen} at {times}"


def timers_not_early(evidence: Evidence) -> Iterator[str]:
    """No timer fires before its time, but for what a node's crystal may gain on the database's."""
    for run_id, rows in histories(evidence).items():
        due = {
            row.event.command_id: row.event.fires_at_us
            for row in rows
            if row.type == "timer_started"
        }
        for row in rows:
            if (
                row.type == "timer_fired"
                and row.committed_us < due[row.event.command_id] - EARLY_US
            ):
                yield f"{run_id}: timer {row.event.command_id} fired early"


def one_effect(evidence: Evidence) -> Iterator[str]:
    """A step of an order has its effect under one key, and an attempt begins in one process."""
    keys: dict[str, set[str]] = defaultdict(set)
    for key, label in evidence.effects.items():
        keys[label].add(key)
    for label, found in keys.items():
        if len(found) > 1:
            yield f"{label} had its effect under {sorted(found)}"
    for (key, attempt), processes in evidence.begun.items():
        if len(processes) > 1:
            yield f"attempt {attempt} of {key} began {len(processes)} times: {processes}"


def completed_had_effect(evidence: Evidence) -> Iterator[str]:
    """An activity that is recorded as completed has had its effect."""
    runs = {run.run_id: run for run in evidence.runs}
    for run_id, rows in histories(evidence).items():
        names = {
            row.event.command_id: row.event for row in rows if row.type == "activity_task_scheduled"
        }
        for row in rows:
            if row.type == "activity_task_completed":
                activity_id = names[row.event.command_id].activity_id
                key = f"{runs[run_id].workflow_id}/{run_id}/{activity_id}"
                if key not in evidence.effects:
                    yield f"{key} is completed without an effect"


def _attempts(evidence: Evidence) -> Iterator[tuple[EventRow, str, AttemptRecord]]:
    """Yield each attempt of an activity that has ended: its event, the activity's key, itself."""
    runs = {run.run_id: run for run in evidence.runs}
    for run_id, rows in histories(evidence).items():
        ids = {
            row.event.command_id: row.event.activity_id
            for row in rows
            if row.type == "activity_task_scheduled"
        }
        for row in rows:
            if ENDS.get(row.type) == "activity":
                key = f"{runs[run_id].workflow_id}/{run_id}/{ids[row.event.command_id]}"
                for attempt in row.event.attempts:
                    yield row, key, attempt


def completed_returned(evidence: Evidence) -> Iterator[str]:
    """The attempt that is recorded as the one that completed had returned by then."""
    for row, key, attempt in _attempts(evidence):
        if attempt.how == "completed":
            returned = evidence.returned.get((key, attempt.attempt))
            if returned is None or returned[0] >= row.txid:
                yield f"attempt {attempt.attempt} of {key} is completed and had not returned"


def no_result_lost(evidence: Evidence) -> Iterator[str]:
    """Where links only broke for moments, an attempt that returned in time was not timed out."""
    if not evidence.is_gentle:
        return
    for _, key, attempt in _attempts(evidence):
        returned = evidence.returned.get((key, attempt.attempt))
        if attempt.how.startswith("timed_out") and returned and returned[1] < QUICK_SECONDS:
            yield f"attempt {attempt.attempt} of {key} had returned and was timed out"


def results_right(evidence: Evidence) -> Iterator[str]:
    """A client got the result that the order must have."""
    for name, expected in evidence.expected.items():
        if name in evidence.results and evidence.results[name] not in expected:
            yield f"{name} returned {evidence.results[name]!r}, none of {expected!r}"


def finished(evidence: Evidence) -> Iterator[str]:
    """After the faults every run ends, and nothing stays in the outbox."""
    if not evidence.is_finished:
        return  # said already, with its names
    for run in evidence.runs:
        if run.status == "running":
            yield f"{run.workflow_id} {run.run_id} is still open"
    if evidence.outbox_count:
        yield f"{evidence.outbox_count} rows stay in the outbox"


CLAIMS: Final = (
    dense, shaped, resolved_once, fenced, ranges_grow, one_open_run, starts_kept, signals_kept,
    seen_before_closing, tasks_in_turn, timers_not_early, one_effect, completed_had_effect,
    completed_returned, no_result_lost, results_right, finished,
)  # fmt: skip


def judge(evidence: Evidence) -> list[str]:
    """Return what is wrong, each with the claim that it breaks."""
    return [f"{claim.__name__}: {what}" for claim in CLAIMS for what in claim(evidence)]
