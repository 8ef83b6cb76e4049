"""The rules at their edges: what is too early to judge, what cannot be read, what adds up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from checker.invariants.circumstances import power
from checker.invariants.conservation import Conservation
from checker.invariants.liveness import Liveness
from checker.invariants.outbox import Outbox, pending_dues
from checker.invariants.rows import CallRow, Experiment, Moment, OutboxState, SignalEventRow, Told
from checker.invariants.signals import Signals
from checker.invariants.tally import OTHER, PROBLEMS_KEPT_MAX, Tally
from checker.reader import EVENTS_MAX, portions
from checker.verdicts import PROMISES, complete, overall, required
from odin.proof.findings import SUBJECTS_MAX, Finding, Verdict
from odin.proof.rows import EffectRow, EventRow, ExecutionRow, RunRows

NOW = 1_000_000_000
SETTLE = 60_000_000
MINUTE = 60_000_000
NOTHING: list[Any] = [["none", 1, 0, 0, 0, False, 0], {}, {}, []]


def moment(*, last_fault_us: int | None = None, is_broken: bool = False) -> Moment:
    return Moment(now_us=NOW, last_fault_us=last_fault_us, is_broken=is_broken, settle_us=SETTLE)


def open_run(**values: object) -> ExecutionRow:
    given: dict[str, Any] = {
        "shard_id": 1,
        "run_id": "r",
        "namespace": "default",
        "workflow_id": "w",
        "first_run_id": "r",
        "workflow_type": "t",
        "task_queue": "q",
        "status": "running",
        "next_event_id": 5,
        "started_at_us": 1,
        "closed_at_us": None,
        "last_event_at_us": 1,
        "due_at_us": None,
        "has_task": False,
        "signal_count": 0,
        "history_bytes": 0,
        "pending": NOTHING,
        **values,
    }
    return ExecutionRow(**given)


def task(state: str, failures: int = 0) -> list[Any]:
    return [[state, 1, 1, NOW + MINUTE, 10_000, False, failures], {}, {}, []]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (open_run(), "valid"),  # waits for a signal
        (open_run(due_at_us=NOW + 1), "valid"),
        (open_run(due_at_us=NOW - SETTLE), "valid"),
        (open_run(due_at_us=NOW - SETTLE - 1), "invalid"),
        (open_run(due_at_us=1, last_event_at_us=NOW - 1), "valid"),
        (open_run(pending=None), "unknown"),
        (open_run(pending=task("backoff")), "invalid"),
        (open_run(pending=task("backoff"), due_at_us=NOW + 1), "valid"),
        (open_run(pending=task("scheduled"), due_at_us=NOW + 1), "invalid"),
        (open_run(pending=task("scheduled"), due_at_us=NOW + 1, last_event_at_us=NOW), "valid"),
        (open_run(pending=task("scheduled", failures=3), due_at_us=NOW + 1), "valid"),
        (open_run(status="completed", due_at_us=1), "valid"),
    ],
)
def test_an_open_run_is_late_once_it_had_its_time(run: ExecutionRow, expected: Verdict) -> None:
    liveness = Liveness(moment())
    liveness.add(run)
    assert liveness.finding().verdict == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (moment(last_fault_us=NOW - SETTLE - 1), "invalid"),
        (moment(last_fault_us=NOW - 1), "unknown"),
        (moment(is_broken=True), "unknown"),
    ],
)
def test_soon_after_a_fault_nothing_is_late_and_nothing_proven(
    at: Moment, expected: Verdict
) -> None:
    liveness, outbox = Liveness(at), Outbox(at)
    liveness.add(open_run(due_at_us=1))
    row = OutboxState(
        shard_id=1,
        id=1,
        run_id="r",
        created_at_us=1,
        publish_count=0,
        status="running",
        closed_at_us=None,
    )
    outbox.add_outbox([row])
    assert (liveness.finding().verdict, outbox.finding().verdict) == (expected, expected)


def test_evidence_that_cannot_be_read_is_told_apart_from_none() -> None:
    experiment = Experiment(
        id="x",
        scenario="kill",
        status="ended",
        started_at_us=1,
        healed_at_us=2,
        ended_at_us=3,
        evidence=None,
    )
    assert power(experiment, "x").words == "1 x the evidence cannot be read"
    assert power(None, "x").words == "there is no experiment 'x'"


def test_a_row_that_is_damaged_has_no_due_instants() -> None:
    rows: list[list[Any] | None] = [None, [], [[], {}, {}], ["x", 1, 2]]
    rows.append([["none", 1, 1, 1], {1: [1]}, {}])
    for damaged in rows:
        assert pending_dues(damaged) is None
    timers: list[Any] = [["scheduled", 1, 1, 7], {}, {3: [3, 9]}, []]
    assert sorted(pending_dues(timers) or []) == [7, 9]


def call(number: int, began: int, ended: int) -> CallRow:
    return CallRow(
        client="c",
        call_id=f"s-{number}",
        kind="signal",
        request_id=f"s-{number}",
        run_id="",
        outcome="ok",
        began=began,
        ended=ended,
        details={},
    )


@pytest.mark.parametrize(
    ("spans", "is_ordered"),
    [
        ([(1, 2), (3, 4)], False),  # the second was sent once the first was accepted
        ([(1, 3), (2, 4)], True),  # side by side: any order will do
    ],
)
def test_only_signals_one_after_the_other_have_an_order(
    spans: list[tuple[int, int]], *, is_ordered: bool
) -> None:
    recorded = [
        SignalEventRow(run_id="r", event_id=place, request_id=f"s-{number}")
        for place, number in enumerate((1, 0), 2)
    ]
    signals = Signals()
    calls = tuple(call(number, *span) for number, span in enumerate(spans))
    signals.add(Told(namespace="default", workflow_id="w", calls=calls, signals=tuple(recorded)))
    words = signals.finding().words
    assert ("out of order" not in words) is is_ordered


def test_a_tally_stays_small_and_the_wrong_outweighs_the_doubtful() -> None:
    tally = Tally("I1", "nothing")
    tally.doubt("d", "cannot be read")
    for number in range(10 * PROBLEMS_KEPT_MAX):
        tally.blame(f"subject-{number}", f"problem {number}")
        tally.blame("subject-0", "problem 0")
    found = tally.finding()
    assert (found.verdict, len(found.subjects)) == ("invalid", SUBJECTS_MAX)
    assert found.counts == {"unknown": 1, "wrong": 20 * PROBLEMS_KEPT_MAX}
    assert f"900 x {OTHER}" in found.words


def test_the_words_of_many_runs_are_added_up_without_their_ids() -> None:
    tally = Tally("I1", "nothing")
    for run in ("a", "b"):
        tally.add(
            Finding(
                invariant="I1",
                verdict="invalid",
                subjects=(run,),
                words=f"{run}: a gap",
                counts={"events": 2, "latest_us": 5, "invalid": 1},
            )
        )
    found = tally.finding()
    assert found.words == "2 x a gap"
    assert found.counts == {"judged": 2, "events": 4, "latest_us": 5, "wrong": 2}


def verdict_of(**given: Verdict) -> Verdict:
    found = [Finding(invariant=name, verdict=given.get(name, "valid")) for name in PROMISES]
    return overall(found, required("x" if "I24" in given else None))


def test_one_invalid_outweighs_all_and_one_required_unknown_outweighs_the_valid() -> None:
    assert verdict_of() == "valid"
    assert verdict_of(I5="unknown") == "unknown"
    assert verdict_of(I5="unknown", I6="invalid") == "invalid"
    assert verdict_of(I17="unknown", I21="unknown", I22="unknown") == "valid"
    assert verdict_of(I22="invalid") == "invalid"
    assert verdict_of(I24="unknown") == "unknown"
    assert overall(complete([]), required(None)) == "unknown"
    assert overall([], required(None)) == "unknown"


def test_a_batch_holds_few_events_or_one_run() -> None:
    sizes = [EVENTS_MAX // 2, EVENTS_MAX // 2, 1, 3 * EVENTS_MAX, 5]
    cut = list(portions([open_run(next_event_id=size) for size in sizes]))
    assert [[one.next_event_id for one in piece] for piece in cut] == [
        sizes[:2],
        sizes[2:3],
        sizes[3:4],
        sizes[4:],
    ]


def order(purchase: dict[str, Any], *, asked: int, charged: int) -> RunRows:
    """The rows of a completed order that asked for one charge."""
    happened: list[tuple[str, dict[str, Any]]] = [
        ("workflow_execution_started", {"input": [json_payload(purchase)]}),
        (
            "activity_task_scheduled",
            {"activity_type": "charge", "input": [json_payload({"amount_cents": asked})]},
        ),
        ("workflow_execution_completed", {"result": json_payload({"status": "completed"})}),
    ]
    events = tuple(
        EventRow(
            shard_id=1,
            run_id="r",
            event_id=number,
            type=name,
            recorded_at_us=number,
            range_id=1,
            txid=number,
            commit_at_us=number,
            attributes=attributes,
        )
        for number, (name, attributes) in enumerate(happened, start=1)
    )
    effect = EffectRow(
        seq=1,
        service="payments",
        kind="charge",
        order_id="o",
        idempotency_key="w/r/1",
        amount_cents=charged,
        body_hash=b"",
        at_us=2,
    )
    execution = open_run(workflow_type="Order", status="completed", closed_at_us=3)
    return RunRows(run_id="r", events=events, execution=execution, effects=(effect,))


def json_payload(value: object) -> list[Any]:
    return ["json", msgspec.json.encode(value)]


@pytest.mark.parametrize(
    ("purchase", "asked", "charged", "expected"),
    [
        ({"amount_cents": 700}, 700, 700, "valid"),
        ({"amount_cents": 700}, 900, 900, "invalid"),
        ({}, 1_200, 1_200, "valid"),  # the shop's own price
        ({}, 1_200, 1_300, "invalid"),
    ],
)
def test_an_order_comes_to_its_price_whoever_named_it(
    purchase: dict[str, Any], asked: int, charged: int, expected: Verdict
) -> None:
    money = Conservation()
    money.add_run(order(purchase, asked=asked, charged=charged))
    assert money.finding().verdict == expected
