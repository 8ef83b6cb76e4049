"""A good order, as the tables hold it, and the copies of it that something is wrong with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from odin.proof import rows as tables

RUN = "018f0000-0000-7000-8000-000000000001"
NEXT = "018f0000-0000-7000-8000-000000000002"
ORDER = "order-1"
SHARD = 3
START_US = 1_900_000_000_000_000
SECOND = 1_000_000
STEPS = ("reserve", "charge", "ship", "assign")
SERVICES = {"reserve": "shipping", "charge": "payments", "ship": "shipping", "assign": "drivers"}


class Story:
    """Writes a history down, one event each tenth of a second, one transaction each."""

    def __init__(self, run_id: str = RUN, first_txid: int = 700) -> None:
        self.run_id = run_id
        self.events: list[tables.EventRow] = []
        self.now_us = START_US
        self.txid = first_txid

    def add(self, type_name: str, **attributes: object) -> tables.EventRow:
        """Append an event that was recorded now and committed two milliseconds later."""
        self.now_us += SECOND // 10
        self.txid += 1
        event = tables.EventRow(
            shard_id=SHARD,
            run_id=self.run_id,
            event_id=len(self.events) + 1,
            type=type_name,
            recorded_at_us=self.now_us,
            range_id=7,
            txid=self.txid,
            commit_at_us=self.now_us + 2_000,
            attributes=attributes,
        )
        self.events.append(event)
        return event

    def task(self) -> None:
        """Append a completed workflow task."""
        self.add("workflow_task_completed", seen=len(self.events), time_us=self.now_us, worker="w")

    def activity(self, command_id: int, name: str, argument: object) -> None:
        """Append an activity that failed once and then returned."""
        self.add(
            "activity_task_scheduled",
            command_id=command_id,
            activity_id=str(command_id),
            activity_type=name,
            task_queue="q",
            input=[json_payload(argument)],
            retry_policy={"maximum_attempts": 3},
        )
        began_us = self.now_us + 10_000
        self.now_us += SECOND
        self.add(
            "activity_task_completed",
            command_id=command_id,
            result=json_payload(None),
            attempts=[
                attempt(1, f"{name}-one", began_us, "failed"),
                attempt(2, f"{name}-two", began_us + 500_000, "completed"),
            ],
        )


def json_payload(value: object) -> list[object]:
    """Return a value as a payload is stored."""
    return ["json", msgspec.json.encode(value)]


def attempt(number: int, token: str, began_us: int, how: str) -> dict[str, Any]:
    """Return the record of an attempt that took a tenth of a second."""
    return {
        "attempt": number,
        "claim_token": token,
        "worker": "w",
        "started_us": began_us,
        "ended_us": began_us + 100_000,
        "how": how,
    }


def effect(seq: int, kind: str, service: str, key: str, at_us: int) -> tables.EffectRow:
    """Return a row of a ledger."""
    return tables.EffectRow(
        seq=seq,
        service=service,
        kind=kind,
        order_id=ORDER,
        idempotency_key=key,
        amount_cents=1_200 if kind in {"charge", "refund"} else 0,
        body_hash=b"hash",
        at_us=at_us,
    )


def key_of(command_id: int) -> str:
    """Return the key of the run's activity."""
    return f"{ORDER}/{RUN}/{command_id}"


def term(range_id: int, what: str, at_us: int) -> tables.TermRow:
    """Return a happening of the shard."""
    return tables.TermRow(
        shard_id=SHARD,
        range_id=range_id,
        incarnation=f"incarnation-{range_id}",
        node_id="engine-1",
        what=what,
        at_us=at_us,
        txid=range_id,
        commit_at_us=at_us,
    )


def execution(story: Story, status: str, **changes: object) -> tables.ExecutionRow:
    """Return the row that a story adds up to, closed at its last event."""
    last_us = story.events[-1].recorded_at_us
    row = tables.ExecutionRow(
        shard_id=SHARD,
        run_id=story.run_id,
        namespace="default",
        workflow_id=ORDER,
        first_run_id=RUN,
        workflow_type="Order",
        task_queue="q",
        status=status,
        next_event_id=len(story.events) + 1,
        started_at_us=story.events[0].recorded_at_us,
        closed_at_us=None if status == "running" else last_us,
        last_event_at_us=last_us,
        due_at_us=None,
        has_task=False,
        signal_count=0,
        history_bytes=0,
        pending=[["none"], {}, {}, []],
    )
    return replace(row, **changes)


def good_order() -> tables.RunRows:
    """Return a delivered order, of one term, with a timer that fired and one cancelled."""
    story = Story()
    story.add("workflow_execution_started", workflow_type="Order", first_run_id=RUN)
    effects: list[tables.EffectRow] = []
    for command_id, step in enumerate(STEPS, 1):
        story.task()
        argument = {"order_id": ORDER, "amount_cents": 1_200} if step == "charge" else ORDER
        story.activity(command_id, step, argument)
        at_us = story.now_us - 200_000
        effects.append(effect(command_id, step, SERVICES[step], key_of(command_id), at_us))
    story.task()
    story.add(
        "timer_started", command_id=5, duration_ms=2_000, fires_at_us=story.now_us + 2 * SECOND
    )
    story.add("timer_started", command_id=6, duration_ms=9_000, fires_at_us=story.now_us * 2)
    story.now_us += 2 * SECOND
    story.add("timer_fired", command_id=5)
    effects.append(effect(5, "deliver", "drivers", f"delivered-{ORDER}", story.now_us))
    story.add("workflow_execution_signaled", name="delivered", request_id=f"delivered-{ORDER}")
    story.task()
    story.add("timer_canceled", command_id=6)
    told = {"order_id": ORDER, "status": "completed"}
    story.add("workflow_execution_completed", result=json_payload(told))
    return tables.RunRows(
        run_id=RUN,
        execution=execution(story, "completed"),
        events=tuple(story.events),
        terms=(
            term(7, "acquired", START_US - SECOND),
            term(7, "expired", story.now_us + 90 * SECOND),
            term(8, "acquired", story.now_us + 90 * SECOND),
        ),
        requests=(),
        outbox=(),
        effects=tuple(effects),
        effects_since_us=START_US - 5 * SECOND,
        has_commit_times=True,
        read_at_us=story.now_us + 100 * SECOND,
    )


def good_open_run() -> tables.RunRows:
    """Return a run that waits for a charge and a timer."""
    story = Story()
    story.add("workflow_execution_started", workflow_type="Nap", first_run_id=RUN)
    story.task()
    story.add("activity_task_scheduled", command_id=1, activity_id="1", activity_type="charge")
    story.add("timer_started", command_id=2, duration_ms=9_000, fires_at_us=story.now_us * 2)
    good = good_order()
    return replace(
        good,
        events=tuple(story.events),
        execution=execution(
            story, "running", workflow_type="subscription", pending=[["none"], {1: []}, {2: []}, []]
        ),
        effects=(),
    )


def given_up_order() -> tables.RunRows:
    """Return the same order, given up after the shipment was asked for, and undone."""
    good = good_order()
    told = {"order_id": ORDER, "status": "compensated"}
    kinds = ("reserve", "charge", "ship", "cancel_shipment", "refund", "unreserve")
    services = ("shipping", "payments", "shipping", "shipping", "payments", "shipping")
    story = Story()
    story.add("workflow_execution_started", workflow_type="Order", first_run_id=RUN)
    effects: list[tables.EffectRow] = []
    for number, (kind, service) in enumerate(zip(kinds, services, strict=True), 1):
        story.task()
        story.activity(number, kind, {"order_id": ORDER, "amount_cents": 1_200})
        at_us = story.now_us - 200_000
        effects.append(effect(number, kind, service, key_of(number), at_us))
    story.task()
    story.add("workflow_execution_completed", result=json_payload(told))
    return replace(
        good,
        events=tuple(story.events),
        execution=execution(story, "completed"),
        effects=tuple(effects),
    )


def good_chain() -> tables.Chain:
    """Return two runs, the second of which continues the first."""
    first = Story()
    first.add("workflow_execution_started", workflow_type="Nap", first_run_id=RUN)
    first.task()
    closing = first.add("workflow_execution_continued_as_new", new_run_id=NEXT)
    second = Story(NEXT, closing.txid - 1)
    second.now_us = first.now_us - SECOND // 10
    second.add(
        "workflow_execution_started",
        workflow_type="Nap",
        first_run_id=RUN,
        continued_from_run_id=RUN,
    )
    runs = tuple(
        replace(
            good_order(),
            run_id=story.run_id,
            events=tuple(story.events),
            execution=execution(story, status, workflow_type="Nap"),
            effects=(),
        )
        for story, status in ((first, "continued_as_new"), (second, "running"))
    )
    starts = tuple(run.execution for run in runs if run.execution is not None)
    return tables.Chain(namespace="default", workflow_id=ORDER, runs=runs, starts=starts)


Spoil = Callable[[tables.RunRows], tables.RunRows]


def with_events(rows: tables.RunRows, *events: tables.EventRow) -> tables.RunRows:
    """Return the rows with another history."""
    return replace(rows, events=tuple(events))


def with_event(rows: tables.RunRows, event_id: int, **changes: object) -> tables.RunRows:
    """Return the rows with one event changed."""
    return with_events(
        rows, *(replace(e, **changes) if e.event_id == event_id else e for e in rows.events)
    )


def with_attributes(rows: tables.RunRows, event_id: int, **changes: object) -> tables.RunRows:
    """Return the rows with attributes of one event changed."""
    old = rows.events[event_id - 1].attributes
    return with_event(rows, event_id, attributes={**old, **changes})


def with_row(rows: tables.RunRows, **changes: object) -> tables.RunRows:
    """Return the rows with the run's own row changed."""
    assert rows.execution is not None
    return replace(rows, execution=replace(rows.execution, **changes))


def first(rows: tables.RunRows, type_name: str) -> tables.EventRow:
    """Return the first event of a type."""
    return next(event for event in rows.events if event.type == type_name)


def last(rows: tables.RunRows, type_name: str) -> tables.EventRow:
    """Return the last event of a type."""
    return next(event for event in reversed(rows.events) if event.type == type_name)


def with_effect(rows: tables.RunRows, kind: str, /, **changes: object) -> tables.RunRows:
    """Return the rows with the effects of one kind changed."""
    assert rows.effects is not None
    return replace(
        rows,
        effects=tuple(replace(e, **changes) if e.kind == kind else e for e in rows.effects),
    )


def without_effect(rows: tables.RunRows, kind: str) -> tables.RunRows:
    """Return the rows without the effects of one kind."""
    assert rows.effects is not None
    return replace(rows, effects=tuple(e for e in rows.effects if e.kind != kind))


def with_more_effects(rows: tables.RunRows, *more: tables.EffectRow) -> tables.RunRows:
    """Return the rows with further effects."""
    return replace(rows, effects=(*(rows.effects or ()), *more))
