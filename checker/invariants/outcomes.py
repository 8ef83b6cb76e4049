"""I20: how a run ended is read the same at any two times. I21: no client sees it go back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tally import Tally, ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odin.proof.findings import Finding

    from .rows import CallRow, Told

RUNNING: Final = "running"
OBSERVING: Final = frozenset({"describe", "result"})


class FrozenOutcomes:
    """The accumulator of I20; fed with digests of the same runs, read earlier and later."""

    def __init__(self) -> None:
        self.tally = Tally("I20", "no run has closed before", idle_is_unknown=True)

    def add(self, earlier: Mapping[str, str], later: Mapping[str, str]) -> None:
        """Hold two readings against each other; runs that are gone by now are only counted."""
        for run_id, digest in earlier.items():
            if run_id not in later:
                self.tally.counts["gone"] += 1
                continue
            self.tally.judge()
            if later[run_id] != digest:
                self.tally.blame(run_id, "an outcome that changed after the run had closed")

    def finding(self) -> Finding:
        """Return what all readings add up to."""
        return self.tally.finding()


class Observations:
    """The accumulator of I21; fed with everything about one workflow id at a time."""

    def __init__(self) -> None:
        self.tally = Tally("I21", "no client has told what it saw", idle_is_unknown=True)

    def add(self, told: Told) -> None:
        """Judge what clients saw of the runs of one workflow id."""
        stored = {one.run_id: one.status for one in told.runs}
        seen: dict[tuple[str, str], str] = {}
        for call in sorted(told.calls, key=lambda one: one.ended):
            status = str(call.details.get("status", ""))
            if call.kind not in OBSERVING or call.outcome != "ok" or not status:
                continue
            self.tally.judge()
            before = seen.get((call.client, call.run_id), RUNNING)
            seen[call.client, call.run_id] = status
            self._judge(told, call, (before, status, stored.get(call.run_id, "")))

    def _judge(self, told: Told, call: CallRow, statuses: tuple[str, str, str]) -> None:
        before, status, now = statuses
        subject = ids((told.workflow_id, call.run_id))
        if before not in {RUNNING, status}:
            self.tally.blame(subject, "a status that went back")
        elif status != RUNNING and now and now != status:
            self.tally.blame(subject, "an end that was seen and is none")

    def finding(self) -> Finding:
        """Return what all observations add up to."""
        return self.tally.finding()
