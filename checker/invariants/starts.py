"""I7: no start is lost, and none happens twice.

An accepted start has exactly one run under its request id; one without an answer has none or one; a
refused one has none and never will. And no chain of runs began without a start that was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tally import Tally, ids

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import RequestRow

    from .rows import CallRow, ClientRow, Told

START: Final = "start"


class Starts:
    """The accumulator of I7; fed with everything about one workflow id at a time.

    Args:
        kept_us: Requests older than this may have outlived their runs, microseconds since 1970.
    """

    def __init__(self, kept_us: int = 0) -> None:
        self._kept_us = kept_us
        self.tally = Tally("I7", "no client has told of a start", idle_is_unknown=True)

    def add_client(self, client: ClientRow) -> None:
        """Doubt a client whose log has holes: what stood there is not judged."""
        missing = client.last_line - client.first_line + 1 - client.line_count
        if missing:
            self.tally.doubt(client.client, "a client's log with lines missing")

    def add(self, told: Told) -> None:
        """Judge the starts of one workflow id."""
        asked = {one.request_id: one for one in told.requests if one.kind == START}
        runs = {one.run_id for one in told.runs}
        for call in told.calls:
            if call.kind == START:
                self.tally.judge()
                self.tally.counts[call.outcome] += 1
                self._judge_call(told, call, asked.get(call.request_id), runs)
        begun = {one.run_id for one in asked.values()}
        for run in told.runs:
            is_first = run.run_id == run.first_run_id and not run.has_parent
            if is_first and run.run_id not in begun:
                self.tally.blame(
                    ids((told.workflow_id, run.run_id)), "a run that no accepted start led to"
                )

    def _judge_call(
        self, told: Told, call: CallRow, request: RequestRow | None, runs: set[str]
    ) -> None:
        subject = ids((told.workflow_id, call.request_id))
        if call.outcome == "fail":
            if request is not None:
                self.tally.blame(subject, "a refused start that ran")
            return
        if request is None:
            if call.outcome == "ok":
                self.tally.blame(subject, "an accepted start that left no trace")
            return
        if call.run_id and call.run_id != request.run_id:
            self.tally.blame(subject, "an accepted start that led to another run")
        if request.run_id not in runs and request.created_at_us >= self._kept_us:
            self.tally.blame(subject, "an accepted start whose run is gone")

    def finding(self) -> Finding:
        """Return what all workflow ids add up to."""
        return self.tally.finding()
