"""Rules over one history and its row: I1, I2, I5, I6, I16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odin.proof.rows import open_commands
from odin.proof.ruling import Ruling
from odin.proof.story import (
    ACTIVITY,
    ANSWERS,
    ASKING,
    CANCEL_ASKED,
    CLOSINGS,
    STARTED,
    TASK_COMPLETED,
    TIMER,
    TIMER_FIRED,
    answered,
    asked,
    closing_of,
    command_of,
    place,
)

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import EventRow, ExecutionRow, RunRows


def dense_history(rows: RunRows) -> Finding:
    """I1: event ids are 1..n, in order of time, and the run's row says that n + 1 is next."""
    ruling = Ruling("I1")
    ruling.count("events", len(rows.events))
    before: EventRow | None = None
    for number, event in enumerate(rows.events, 1):
        if event.event_id != number:
            ruling.wrong(place(event), f"event {number} was expected here")
            break
        if before is not None and event.recorded_at_us < before.recorded_at_us:
            ruling.wrong(place(event), "its time lies before that of the event before it")
        before = event
    newest = rows.events[-1].event_id if rows.events else 0
    if rows.execution is None:
        ruling.unclear(rows.run_id, "there is no row of the run to hold the history against")
    elif rows.execution.next_event_id != newest + 1:
        ruling.wrong(
            rows.run_id,
            f"the row expects event {rows.execution.next_event_id} next,"
            f" and the history ends at {newest}",
        )
    return ruling.finding("the event ids are dense, and the row agrees")


def shape(rows: RunRows) -> Finding:
    """I2: the first event is the start, at most one closes, and nothing follows it."""
    ruling = Ruling("I2")
    _one_start(ruling, rows)
    closing = closing_of(rows)
    if closing is not None:
        ruling.count("closings")
        _nothing_later(ruling, rows, closing)
    if rows.execution is None:
        ruling.unclear(rows.run_id, "there is no row of the run to hold the history against")
    else:
        _row_agrees(ruling, rows.execution, closing)
    return ruling.finding("one start, at most one end, and nothing after it")


def _one_start(ruling: Ruling, rows: RunRows) -> None:
    if not rows.events:
        ruling.wrong(rows.run_id, "the history is empty")
    for number, event in enumerate(rows.events):
        if event.damage:
            ruling.wrong(place(event), f"its attributes cannot be read: {event.damage}")
        if number == 0 and event.type != STARTED:
            ruling.wrong(place(event), f"a history begins with {STARTED}")
        elif number and event.type == STARTED:
            ruling.wrong(place(event), "the run started a second time")


def _nothing_later(ruling: Ruling, rows: RunRows, closing: EventRow) -> None:
    """Neither by its id nor by its commit may an event come after the closing one."""
    closed_us = closing.commit_at_us
    is_over = False
    for event in rows.events:
        if is_over:
            ruling.wrong(place(event), f"it follows the closing event {closing.event_id}")
        elif closed_us is not None and (event.commit_at_us or 0) > closed_us:
            ruling.wrong(place(event), "it committed after the closing event")
        is_over = is_over or event is closing


def _row_agrees(ruling: Ruling, execution: ExecutionRow, closing: EventRow | None) -> None:
    status = "running" if closing is None else CLOSINGS[closing.type]
    if execution.status != status:
        ruling.wrong(
            execution.run_id,
            f"the row says {execution.status}, the history ends as {status}",
        )
    ended_us = None if closing is None else closing.recorded_at_us
    if execution.closed_at_us != ended_us:
        ruling.wrong(execution.run_id, "the row says another time of closing than the history")


def causality(rows: RunRows) -> Finding:
    """I5: what was resolved had been asked for before, and was resolved once."""
    ruling = Ruling("I5")
    before: dict[Any, EventRow] = {}
    resolved: dict[Any, EventRow] = {}
    for event in rows.events:
        command_id = command_of(event)
        cause = before.get(command_id)
        if event.type in ASKING:
            ruling.count("asked")
            if cause is not None:
                ruling.wrong(place(event), f"event {cause.event_id} asked for {command_id} before")
            before[command_id] = event
        elif event.type in ANSWERS:
            ruling.count("resolved")
            _caused(ruling, event, ANSWERS[event.type], cause)
            if command_id in resolved:
                earlier = resolved[command_id].event_id
                ruling.wrong(place(event), f"event {earlier} resolved command {command_id} before")
            resolved[command_id] = event
        elif event.type == CANCEL_ASKED:
            _caused(ruling, event, ACTIVITY, cause)
        elif event.type == TASK_COMPLETED and event.attributes["seen"] >= event.event_id:
            ruling.wrong(place(event), "the worker claims to have seen an event of the future")
    return ruling.finding("every resolution has one earlier cause, and is its only one")


def _caused(ruling: Ruling, event: EventRow, by: str, cause: EventRow | None) -> None:
    if cause is None or cause.type != by:
        ruling.wrong(place(event), f"no earlier {by} has command id {command_of(event)}")


def completeness(rows: RunRows) -> Finding:
    """I6: what an open run waits for is what its history leaves open; a closed one waits for none.

    The end of a run abandons what it had asked for: these are counted.
    """
    ruling = Ruling("I6")
    resolved = answered(rows.events)
    left = {one for one in asked(rows.events) if one not in resolved}
    if rows.execution is None:
        ruling.unclear(rows.run_id, "there is no row of the run to hold the history against")
        return ruling.finding("")
    waited = open_commands(rows.execution)
    if waited is None:
        ruling.wrong(rows.run_id, "what the row waits for cannot be read")
        return ruling.finding("")
    if closing_of(rows) is None:
        ruling.count("open", len(left))
        for command_id in sorted(left - waited):
            ruling.wrong(rows.run_id, f"the row has forgotten command {command_id}")
        for command_id in sorted(waited - left):
            ruling.wrong(rows.run_id, f"the row waits for command {command_id}, which is not open")
        return ruling.finding("the row waits for exactly what the history leaves open")
    ruling.count("abandoned", len(left))
    for command_id in sorted(waited):
        ruling.wrong(rows.run_id, f"closed, and its row still waits for command {command_id}")
    if rows.execution.has_task or rows.execution.due_at_us is not None:
        ruling.wrong(rows.run_id, "closed, and its row is still due")
    return ruling.finding("the closed run waits for nothing")


def timers(rows: RunRows) -> Finding:
    """I16: no timer fires before its time; how late each was is counted, not judged."""
    ruling = Ruling("I16")
    started = {command_of(event): event for event in rows.events if event.type == TIMER}
    for event in rows.events:
        if event.type != TIMER_FIRED or command_of(event) not in started:
            continue  # a timer out of nowhere breaks I5
        due_us: int = started[command_of(event)].attributes["fires_at_us"]
        ruling.count("fired")
        if event.recorded_at_us < due_us:
            ruling.wrong(place(event), f"recorded {due_us - event.recorded_at_us} µs too early")
        elif event.commit_at_us is None:
            ruling.unclear(place(event), "when it committed is not known")
        elif event.commit_at_us < due_us:
            ruling.wrong(place(event), f"committed {due_us - event.commit_at_us} µs too early")
        else:
            ruling.most("latest_us", event.commit_at_us - due_us)
    return ruling.finding("no timer fired early")
