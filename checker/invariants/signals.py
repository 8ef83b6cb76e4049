"""I8: a signal that was accepted stands once in the histories of its workflow id, and in order.

Accepted is what has a request row, what a client was told is accepted, and what a mock service was.
Order: of two signals of one client, of which the second was sent after the first was accepted, the
second stands later.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from .tally import Tally, ids

if TYPE_CHECKING:
    from odin.proof.findings import Finding

    from .rows import Told

SIGNAL: Final = "signal"


class Signals:
    """The accumulator of I8; fed with everything about one workflow id at a time."""

    def __init__(self) -> None:
        self.tally = Tally("I8", "no signal was accepted")

    def add(self, told: Told) -> None:
        """Judge the signals of one workflow id."""
        runs = {one.run_id for one in told.runs}
        rows = {one.request_id: one for one in told.requests if one.kind == SIGNAL}
        recorded = Counter(one.request_id for one in told.signals if one.request_id)
        at = {(one.run_id, one.event_id): one.request_id for one in told.signals}
        for request_id, row in rows.items():
            self.tally.judge()
            subject = ids((told.workflow_id, request_id))
            if row.run_id not in runs:
                self.tally.counts["of runs that are gone"] += 1
            elif at.get((row.run_id, row.event_id)) != request_id:
                self.tally.blame(subject, "an accepted signal that is not in the history")
        self._judge_recorded(told, recorded)
        self._judge_told(told, set(rows) | set(recorded))
        self._judge_order(told)

    def _judge_recorded(self, told: Told, recorded: Counter[str]) -> None:
        asked = {one.request_id for one in told.requests}
        for request_id, count in recorded.items():
            subject = ids((told.workflow_id, request_id))
            if count > 1:
                self.tally.blame(subject, "a signal that was recorded twice")
            if request_id not in asked:
                self.tally.blame(subject, "a signal whose acceptance was not kept")

    def _judge_told(self, told: Told, known: set[str]) -> None:
        """Hold against the rows what others were told is accepted."""
        accepted = {
            one.request_id for one in told.calls if one.kind == SIGNAL and one.outcome == "ok"
        } | {one.request_id for one in told.deliveries if one.state == "reported"}
        refused = {
            one.request_id for one in told.calls if one.kind == SIGNAL and one.outcome == "fail"
        }
        self.tally.judge(len(accepted), "told")
        for request_id in sorted(accepted - known):
            self.tally.blame(ids((told.workflow_id, request_id)), "an accepted signal was lost")
        for request_id in sorted(refused & known):
            self.tally.blame(ids((told.workflow_id, request_id)), "a refused signal was recorded")

    def _judge_order(self, told: Told) -> None:
        place = {one.request_id: number for number, one in enumerate(told.signals)}
        sent = [
            one
            for one in told.calls
            if one.kind == SIGNAL and one.outcome == "ok" and one.request_id in place
        ]
        for client in sorted({one.client for one in sent}):
            own = sorted((one for one in sent if one.client == client), key=lambda one: one.began)
            newest = -1
            ended: list[tuple[int, int]] = []
            for call in own:
                newest = max((at for end, at in ended if end < call.began), default=newest)
                if place[call.request_id] < newest:
                    self.tally.blame(
                        ids((told.workflow_id, call.request_id)), "signals of a client out of order"
                    )
                ended.append((call.ended, place[call.request_id]))

    def finding(self) -> Finding:
        """Return what all workflow ids add up to."""
        return self.tally.finding()
