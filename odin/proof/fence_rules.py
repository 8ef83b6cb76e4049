"""I3: every event was written under a term of its shard, while that term was the newest."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from odin.proof.ruling import Ruling
from odin.proof.story import place

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import EventRow, RunRows, TermRow

BEGINNINGS: Final = frozenset({"acquired", "bumped"})


def beginnings(terms: tuple[TermRow, ...], shard_id: int) -> dict[int, TermRow]:
    """Return the row that began each range of the shard."""
    return {
        term.range_id: term
        for term in terms
        if term.what in BEGINNINGS and term.shard_id == shard_id
    }


def fence(rows: RunRows) -> Finding:
    """I3: the range was given out, and the event committed after it began and before the next.

    Ranges never go back along the history. Commit times are those of the database, given while the
    shard's row is locked, so that no two of these transactions share one; without them the order of
    the commits is not known.
    """
    ruling = Ruling("I3")
    if rows.terms is None:
        ruling.unclear(rows.run_id, "the terms of its shard were not read")
        return ruling.finding("")
    if not rows.has_commit_times:
        ruling.unclear(rows.run_id, "the server keeps no commit times (track_commit_timestamp)")
    shard_ids = {event.shard_id for event in rows.events}
    if len(shard_ids) > 1:
        ruling.wrong(rows.run_id, f"its events lie in the shards {sorted(shard_ids)}")
    for shard_id in shard_ids:
        _begun_once(ruling, rows.terms, shard_id)
    begun = {shard_id: beginnings(rows.terms, shard_id) for shard_id in shard_ids}
    order = {shard_id: sorted(terms) for shard_id, terms in begun.items()}
    newest = 0
    for event in rows.events:
        ruling.count("events")
        if event.range_id < newest:
            ruling.wrong(place(event), f"written under range {event.range_id} after {newest}")
        newest = max(newest, event.range_id)
        _in_its_term(ruling, event, begun[event.shard_id], order[event.shard_id])
    return ruling.finding("every event committed within the term that wrote it")


def _begun_once(ruling: Ruling, terms: tuple[TermRow, ...], shard_id: int) -> None:
    seen: set[int] = set()
    for term in terms:
        if term.shard_id != shard_id or term.what not in BEGINNINGS:
            continue
        if term.range_id in seen:
            ruling.wrong(f"shard {shard_id}", f"range {term.range_id} began twice")
        seen.add(term.range_id)


def _in_its_term(
    ruling: Ruling, event: EventRow, begun: dict[int, TermRow], order: list[int]
) -> None:
    own = begun.get(event.range_id)
    if own is None:
        ruling.wrong(place(event), f"range {event.range_id} of its shard was never given out")
        return
    if event.commit_at_us is None or own.commit_at_us is None:
        ruling.unclear(place(event), "when it, or its term, committed is not known")
        return
    if event.commit_at_us <= own.commit_at_us:
        ruling.wrong(place(event), f"committed before its range {event.range_id} began")
    following = bisect_right(order, event.range_id)
    if following == len(order):
        return
    after = begun[order[following]]
    if after.commit_at_us is None:
        ruling.unclear(place(event), f"when range {after.range_id} began is not known")
    elif event.commit_at_us >= after.commit_at_us:
        ruling.wrong(place(event), f"committed after range {after.range_id} had begun")
