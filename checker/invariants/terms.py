"""I4: each shard has one term after another, each of one owner, and no two at the same time.

A term begins with `acquired` or `bumped` and ends with `released` (by its owner) or `expired` (by
whoever took over). Times are the database's own: they are written while the shard's row is locked.

    acquired 1 ── expired 1, acquired 2 ── bumped 3 (ends 2) ── released 3 ── acquired 4
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from .tally import Tally, ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.proof.findings import Finding
    from odin.proof.rows import TermRow

    from .rows import ShardRow

BEGINS: Final = frozenset({"acquired", "bumped"})


class Terms:
    """The accumulator of I4; fed with whole shards."""

    def __init__(self) -> None:
        self.tally = Tally("I4", "no shard was ever owned", idle_is_unknown=True)

    def add(self, shard: ShardRow, terms: Sequence[TermRow]) -> None:
        """Judge one shard.

        Args:
            shard: Its fence.
            terms: Every happening of it, in any order.
        """
        by_range = [
            (range_id, list(rows))
            for range_id, rows in groupby(
                sorted(terms, key=lambda one: (one.range_id, one.at_us)), lambda one: one.range_id
            )
        ]
        before: list[TermRow] = []
        for expected, (range_id, rows) in enumerate(by_range, 1):
            self.tally.judge()
            if range_id != expected and (not before or range_id != before[0].range_id + 1):
                self.tally.blame(ids((shard.shard_id, range_id)), "a range that skips one")
            self._judge_term(rows)
            if before:
                self._judge_change(before, rows)
            before = rows
        self._judge_fence(shard, before)

    def _judge_term(self, rows: Sequence[TermRow]) -> None:
        subject = ids((rows[0].shard_id, rows[0].range_id))
        begins = [one for one in rows if one.what in BEGINS]
        ends = [one for one in rows if one.what not in BEGINS]
        if len(begins) != 1:
            self.tally.blame(subject, "a term that does not begin exactly once")
        if len(ends) > 1:
            self.tally.blame(subject, "a term that ends twice")
        if len({one.incarnation for one in rows}) > 1:
            self.tally.blame(subject, "a term of two owners")
        if begins and ends and ends[0].at_us < begins[0].at_us:
            self.tally.blame(subject, "a term that ends before it begins")

    def _judge_change(self, before: Sequence[TermRow], after: Sequence[TermRow]) -> None:
        subject = ids((after[0].shard_id, after[0].range_id))
        ends = [one for one in before if one.what not in BEGINS]
        begins = [one for one in after if one.what in BEGINS]
        if not begins:
            return
        begin = begins[0]
        if begin.what == "bumped":
            if ends or before[0].incarnation != begin.incarnation:
                self.tally.blame(subject, "a term prolonged by somebody else than its owner")
        elif not ends:
            self.tally.blame(subject, "a term taken over although the one before never ended")
        latest = max(one.at_us for one in before)
        if begin.at_us < latest:
            self.tally.blame(subject, "two terms that overlap")

    def _judge_fence(self, shard: ShardRow, last: Sequence[TermRow]) -> None:
        newest = last[0].range_id if last else 0
        if shard.range_id != newest:
            self.tally.blame(
                ids((shard.shard_id, shard.range_id)), "a fence whose term nobody recorded"
            )
        elif shard.owner is not None and last and last[-1].incarnation != shard.owner:
            self.tally.blame(
                ids((shard.shard_id, shard.range_id)), "an owner that its term does not name"
            )
        elif shard.owner is not None and any(one.what == "released" for one in last):
            self.tally.blame(
                ids((shard.shard_id, shard.range_id)), "an owner after its term was released"
            )

    def finding(self) -> Finding:
        """Return what all shards add up to."""
        return self.tally.finding()
