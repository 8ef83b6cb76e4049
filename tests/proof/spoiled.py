"""Copies of good rows that something is wrong with, and the invariant that must notice."""

from __future__ import annotations

from msgspec.structs import replace

from odin.proof import RunRows
from tests.proof.good import (
    SECOND,
    START_US,
    Spoil,
    attempt,
    effect,
    first,
    key_of,
    last,
    term,
    with_attributes,
    with_effect,
    with_event,
    with_events,
    with_more_effects,
    with_row,
    without_effect,
)

COMPLETED = "activity_task_completed"
SCHEDULED = "activity_task_scheduled"


def dropped(rows: RunRows) -> RunRows:
    """Return the rows without the fourth event."""
    return with_events(rows, *rows.events[:3], *rows.events[4:])


def doubled(rows: RunRows) -> RunRows:
    """Return the rows with the fourth event twice."""
    return with_events(rows, *rows.events[:4], *rows.events[3:])


def swapped(rows: RunRows) -> RunRows:
    """Return the rows with what events 3 and 4 say exchanged."""
    three, four = rows.events[2:4]
    exchanged = (
        replace(four, event_id=3, recorded_at_us=three.recorded_at_us),
        replace(three, event_id=4, recorded_at_us=four.recorded_at_us),
    )
    return with_events(rows, *rows.events[:2], *exchanged, *rows.events[4:])


def resolved_twice(rows: RunRows) -> RunRows:
    """Return the rows with a second resolution of the first activity."""
    again = replace(first(rows, COMPLETED), event_id=rows.events[-2].event_id)
    return with_events(rows, *rows.events[:-2], again, rows.events[-1])


def second_end(rows: RunRows) -> RunRows:
    """Return the rows with the closing event once more."""
    closing = rows.events[-1]
    return with_events(rows, *rows.events, replace(closing, event_id=closing.event_id + 1))


def early(rows: RunRows) -> RunRows:
    """Return the rows with the timer fired a second before its time."""
    fired = first(rows, "timer_fired")
    return with_event(rows, fired.event_id, recorded_at_us=fired.recorded_at_us - 2 * SECOND)


def early_commit(rows: RunRows) -> RunRows:
    """Return the rows with a timer whose event says one time, and whose commit another."""
    fired = first(rows, "timer_fired")
    return with_event(rows, fired.event_id, commit_at_us=fired.recorded_at_us - 2 * SECOND)


def with_attempts(*attempts: dict[str, object]) -> Spoil:
    """Return what replaces the attempts of the first activity."""
    return lambda rows: with_attributes(
        rows, first(rows, COMPLETED).event_id, attempts=list(attempts)
    )


def stale(rows: RunRows) -> RunRows:
    """Return the rows with a newer range that began before the last events committed."""
    began = term(8, "acquired", rows.events[5].recorded_at_us)
    return replace(rows, terms=(*(rows.terms or ())[:2], began))


def swap_last(rows: RunRows) -> RunRows:
    """Return the rows with the closing event before the last of the others."""
    *others, before, closing = rows.events
    return with_events(
        rows,
        *others,
        replace(closing, event_id=before.event_id),
        replace(before, event_id=closing.event_id),
    )


def just_as_the_next_began(rows: RunRows) -> RunRows:
    """Return the rows with the last commit at the instant of the next range's."""
    return with_event(rows, len(rows.events), commit_at_us=(rows.terms or ())[-1].commit_at_us)


def ranges_back(rows: RunRows) -> RunRows:
    """Return the rows with a newer range in between, and no time of any commit."""
    rows = with_event(rows, 2, range_id=8)
    return with_events(rows, *(replace(event, commit_at_us=None) for event in rows.events))


BEGAN_US = START_US + 310_000
SPOILED: list[tuple[str, str, str, Spoil]] = [
    ("I1", "an event is missing", "order", dropped),
    ("I1", "an event is there twice", "order", doubled),
    ("I1", "the row counts one more", "order", lambda r: with_row(r, next_event_id=99)),
    ("I1", "time goes back", "order", lambda r: with_event(r, 4, recorded_at_us=START_US)),
    ("I2", "two ends", "order", second_end),
    ("I2", "no start", "order", lambda r: with_event(r, 1, type="timer_started")),
    ("I2", "two starts", "order", lambda r: with_event(r, 2, type=r.events[0].type)),
    ("I2", "no events", "order", with_events),
    ("I2", "an event after the end", "order", swap_last),
    ("I2", "a commit after the end", "order", lambda r: with_event(r, 3, commit_at_us=2**62)),
    ("I2", "the row still runs", "order", lambda r: with_row(r, status="running")),
    ("I2", "another time of closing", "order", lambda r: with_row(r, closed_at_us=1)),
    ("I2", "unreadable attributes", "order", lambda r: with_event(r, 3, damage="truncated")),
    ("I3", "a range nobody was given", "order", lambda r: with_event(r, 5, range_id=6)),
    ("I3", "a write of an old range", "order", stale),
    ("I3", "a write before its range", "order", lambda r: with_event(r, 1, commit_at_us=1)),
    ("I3", "the range goes back", "order", lambda r: with_event(r, 2, range_id=8)),
    (
        "I3",
        "a range begun twice",
        "order",
        lambda r: replace(r, terms=(*(r.terms or ()), term(7, "bumped", START_US - SECOND))),
    ),
    ("I3", "an event of another shard", "order", lambda r: with_event(r, 5, shard_id=4)),
    ("I5", "resolved before it was asked", "order", swapped),
    ("I5", "resolved, never asked", "order", lambda r: with_event(r, 3, type="timer_started")),
    ("I5", "resolved twice", "order", resolved_twice),
    (
        "I5",
        "asked for twice",
        "order",
        lambda r: with_attributes(r, last(r, SCHEDULED).event_id, command_id=1),
    ),
    ("I5", "the future was seen", "order", lambda r: with_attributes(r, 2, seen=2)),
    (
        "I5",
        "a cancellation of nothing",
        "order",
        lambda r: with_event(
            r, 2, type="activity_task_cancel_requested", attributes={"command_id": 1}
        ),
    ),
    ("I6", "closed with an open timer", "order", lambda r: with_row(r, pending=[0, {}, {5: []}])),
    ("I6", "closed with a task", "order", lambda r: with_row(r, has_task=True)),
    ("I6", "closed and due", "order", lambda r: with_row(r, due_at_us=START_US)),
    ("I6", "an activity is forgotten", "open", lambda r: with_row(r, pending=[0, {}, {2: []}])),
    (
        "I6",
        "a timer out of nowhere",
        "open",
        lambda r: with_row(r, pending=[0, {1: []}, {2: [], 3: []}]),
    ),
    ("I6", "unreadable", "open", lambda r: with_row(r, pending=None)),
    (
        "I10",
        "charged twice",
        "order",
        lambda r: with_more_effects(r, effect(9, "charge", "payments", key_of(2), START_US)),
    ),
    ("I10", "another amount", "order", lambda r: with_effect(r, "charge", amount_cents=1_300)),
    ("I10", "too much given back", "given up", lambda r: with_effect(r, "charge", amount_cents=1)),
    (
        "I11",
        "an effect that nobody asked for",
        "order",
        lambda r: with_more_effects(r, effect(9, "charge", "payments", key_of(77), START_US)),
    ),
    ("I11", "no effect of a step", "order", lambda r: without_effect(r, "charge")),
    ("I11", "no effect at all", "order", lambda r: replace(r, effects=())),
    ("I11", "another effect", "order", lambda r: with_effect(r, "ship", kind="reserve")),
    ("I11", "done before it was asked for", "order", lambda r: with_effect(r, "ship", at_us=1)),
    ("I11", "done after it completed", "order", lambda r: with_effect(r, "ship", at_us=2**62)),
    ("I12", "shipped before the charge", "order", lambda r: with_effect(r, "ship", seq=1)),
    ("I12", "delivered before it was shipped", "order", lambda r: with_effect(r, "deliver", seq=0)),
    ("I12", "undone before it was done", "given up", lambda r: with_effect(r, "refund", seq=0)),
    ("I12", "done after it was undone", "given up", lambda r: with_effect(r, "ship", seq=9)),
    ("I12", "not undone", "given up", lambda r: without_effect(r, "refund")),
    (
        "I12",
        "undone although it succeeded",
        "order",
        lambda r: with_more_effects(r, effect(9, "refund", "payments", key_of(2), START_US)),
    ),
    (
        "I15",
        "two claims of one attempt",
        "order",
        with_attempts(
            attempt(1, "one", BEGAN_US, "failed"),
            attempt(1, "two", BEGAN_US + 500_000, "completed"),
        ),
    ),
    (
        "I15",
        "an attempt is missing",
        "order",
        with_attempts(attempt(2, "two", BEGAN_US + 500_000, "completed")),
    ),
    (
        "I15",
        "two accepted",
        "order",
        with_attempts(
            attempt(1, "one", BEGAN_US, "completed"),
            attempt(2, "two", BEGAN_US + 500_000, "completed"),
        ),
    ),
    ("I15", "none accepted", "order", with_attempts(attempt(1, "one", BEGAN_US, "failed"))),
    ("I15", "no attempt", "order", with_attempts()),
    (
        "I15",
        "one token for two",
        "order",
        with_attempts(
            attempt(1, "one", BEGAN_US, "failed"),
            attempt(2, "one", BEGAN_US + 500_000, "completed"),
        ),
    ),
    (
        "I15",
        "ended before it began",
        "order",
        with_attempts({**attempt(1, "one", BEGAN_US, "completed"), "ended_us": BEGAN_US - 1}),
    ),
    (
        "I15",
        "two alive at once",
        "order",
        with_attempts(
            {**attempt(1, "one", BEGAN_US, "failed"), "ended_us": BEGAN_US + 5 * SECOND},
            attempt(2, "two", BEGAN_US + 1_000, "completed"),
        ),
    ),
    (
        "I15",
        "more than are allowed",
        "order",
        lambda r: with_attributes(
            r, first(r, SCHEDULED).event_id, retry_policy={"maximum_attempts": 1}
        ),
    ),
    (
        "I15",
        "failed, and an attempt completed",
        "order",
        lambda r: with_event(r, first(r, COMPLETED).event_id, type="activity_task_failed"),
    ),
    (
        "I3",
        "an event of another shard's like range",
        "order",
        lambda r: replace(
            with_event(r, 5, shard_id=4),
            terms=(*(r.terms or ()), replace(term(7, "acquired", START_US - SECOND), shard_id=4)),
        ),
    ),
    ("I3", "the range goes back, commits unknown", "order", ranges_back),
    ("I3", "the first range is nobody's", "order", lambda r: with_event(r, 1, range_id=6)),
    (
        "I10",
        "given back too much",
        "given up",
        lambda r: with_effect(r, "refund", amount_cents=9_999),
    ),
    (
        "I11",
        "more than was asked for",
        "order",
        lambda r: with_more_effects(r, effect(9, "reserve", "shipping", key_of(3), 2**60)),
    ),
    ("I2", "no events and no row", "order", lambda r: replace(with_events(r), execution=None)),
    (
        "I3",
        "a commit just as its range began",
        "order",
        lambda r: with_event(r, 1, commit_at_us=START_US - SECOND),
    ),
    ("I3", "a commit just as the next range began", "order", just_as_the_next_began),
    ("I5", "one id for two", "open", lambda r: with_attributes(r, 4, command_id=1)),
    ("I12", "cancelled, not undone", "order", lambda r: with_row(r, status="canceled")),
    (
        "I12",
        "continued as new, and undone",
        "given up",
        lambda r: with_row(r, status="continued_as_new"),
    ),
    ("I12", "undone, never done", "given up", lambda r: without_effect(r, "charge")),
    (
        "I12",
        "done again after it was undone",
        "given up",
        lambda r: with_more_effects(r, effect(9, "ship", "shipping", key_of(3), START_US)),
    ),
    ("I16", "recorded early", "order", early),
    ("I16", "committed early", "order", early_commit),
]
