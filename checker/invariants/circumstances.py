"""I17, I22, I23, I24: schedules, refusals, the database's health, the power of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .tally import Tally, ids, unjudged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odin.proof.findings import Finding

    from .rows import Experiment, SessionRow, TableRow, Told

IDLE_SECONDS_MAX: Final = 5.0
LOCK_SECONDS_MAX: Final = 10.0
DEAD_TUPLES_MAX: Final = 20_000
EXHAUSTED: Final = frozenset({"RESOURCE_EXHAUSTED"})


def schedules(schedule_count: int) -> Finding:
    """Return I17: nothing fires schedules yet, so nothing is proven of them."""
    return unjudged(
        "I17", f"not built: {schedule_count} schedules are stored, and nobody fires any"
    )


class Admission:
    """The accumulator of I22; fed with everything about one workflow id at a time.

    Judged is that a refusal says when to come back. How much a quota lets in is not: the quota
    stands nowhere in the database.
    """

    def __init__(self) -> None:
        self.tally = Tally("I22", "no call was refused for lack of room")

    def add(self, told: Told) -> None:
        """Judge the refusals of one workflow id."""
        for call in told.calls:
            if call.outcome != "fail" or call.details.get("reason") not in EXHAUSTED:
                continue
            self.tally.judge(kind="refusals")
            if not _is_positive(call.details.get("retry_after_ms")):
                self.tally.blame(
                    ids((told.workflow_id, call.request_id)), "a refusal without retry_after"
                )

    def finding(self) -> Finding:
        """Return what all refusals add up to."""
        return self.tally.finding()


def hygiene(sessions: Iterable[SessionRow], tables: Iterable[TableRow]) -> Finding:
    """Return I23, as the database stands at this moment."""
    tally = Tally("I23", "the database shows no session and no table", idle_is_unknown=True)
    for session in sessions:
        tally.judge(kind="sessions")
        subject = ids((session.application_name or "unnamed", session.pid))
        if session.idle_in_transaction_seconds > IDLE_SECONDS_MAX:
            tally.blame(subject, "idle in a transaction for more than 5 s")
        if session.lock_wait_seconds > LOCK_SECONDS_MAX:
            tally.blame(subject, "waiting for a lock for more than 10 s")
    for table in tables:
        tally.judge(kind="tables")
        if table.dead_tuples > max(DEAD_TUPLES_MAX, table.live_tuples):
            tally.blame(table.name, "more dead rows than vacuum should leave")
    return tally.finding()


def power(experiment: Experiment | None, name: str) -> Finding:
    """Return I24: the faults of an experiment were seen to take effect, and were healed.

    `evidence` holds `faults`, a list of objects: `fault` says which, `bit` whether it was seen to
    take effect. What is missing or false makes the verdict unknown, never invalid: the system has
    done nothing wrong, the test has shown nothing.

    Args:
        experiment: What stands of it; None if nothing does.
        name: Its id.
    """
    tally = Tally("I24", "the experiment broke nothing", idle_is_unknown=True)
    if experiment is None:
        return unjudged("I24", f"there is no experiment {name!r}")
    if experiment.healed_at_us is None:
        tally.doubt(experiment.id, "the faults are not healed")
    if experiment.evidence is None:
        tally.doubt(experiment.id, "the evidence cannot be read")
        return tally.finding()
    for number, fault in enumerate(_faults(experiment.evidence), 1):
        tally.judge(kind="faults")
        if fault.get("bit") is not True:
            what = str(fault.get("fault", number))
            tally.doubt(ids((experiment.id, what)), "a fault that was not seen to take effect")
    return tally.finding()


def _faults(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    match evidence.get("faults"):
        case list() as faults:
            return [one if isinstance(one, dict) else {} for one in faults]
        case _:
            return []


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
