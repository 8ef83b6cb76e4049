"""The verification at the demo's end: green for what happened, red for every spoiled book."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.client_log import ClientLog, read, starts
from cluster.verdicts import faults_of_compensated, faults_of_completed
from cluster.verify import outcome_of, verify
from odin.core.definition import WorkflowInfo
from odin.core.instance import Instance
from odin.runtime.clock import SystemClock
from tests.core.replay_owner import RUN_ID, Owner
from worker.orders import Order
from worker.shop import Purchase
from worker.subscription import Plan, subscription

from .demo_fixture import Demo, demo_of, execute

DONE, DECLINED, SUBSCRIBER = "order-t-0", "order-t-1", "subscription-t-0"
PURCHASE = Purchase(DONE, "sku-03", 2, 1250, "visa")
KEEP = [
    f"CREATE TABLE kept_{name} AS SELECT * FROM {name}"
    for name in ("mock_ledger", "execution", "event", "mock_stock")
]
HEAL = [
    statement
    for name in ("mock_ledger", "execution", "event", "mock_stock")
    for statement in (
        f"DELETE FROM {name}",
        f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{name}",
    )
]


def add_effect(effect: str, order_id: str, amount_cents: int = 0) -> str:
    return f"""
    INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, amount_cents, body_hash)
    VALUES ('payments', '{effect}', '{order_id}', 'another-key', {amount_cents}, '')
    """


def drop_effect(effect: str, order_id: str) -> str:
    return f"DELETE FROM mock_ledger WHERE effect = '{effect}' AND order_id = '{order_id}'"


def repeat_effect(effect: str, order_id: str) -> str:
    return add_effect(effect, order_id, 1250)


def in_run(table: str, workflow_id: str) -> str:
    return f"""{table}.run_id IN (
        SELECT run_id FROM kept_execution WHERE workflow_id = '{workflow_id}'
    )"""


SPOILED = {
    "a double charge": ([repeat_effect("charge", DONE)], "not charged exactly once"),
    "a charge that was refunded": ([add_effect("refund", DONE, 1250)], "not charged exactly once"),
    "no charge": ([drop_effect("charge", DONE)], "not charged exactly once"),
    "another amount": (
        [drop_effect("charge", DONE), add_effect("charge", DONE, 1)],
        "steps not in order, once each",
    ),
    "a charge after the shipment": (
        [drop_effect("charge", DONE), add_effect("charge", DONE, 1250)],
        "steps not in order, once each",
    ),
    "a shipment twice": ([add_effect("ship", DONE)], "steps not in order, once each"),
    "a charge that nobody gave back": (
        [add_effect("charge", DECLINED, 1250)],
        "charged and not given back",
    ),
    "a reservation that nobody gave back": (
        [drop_effect("unreserve", DECLINED)],
        "not undone in reverse, once each",
    ),
    "something undone twice": (
        [add_effect("unreserve", DECLINED)],
        "not undone in reverse, once each",
    ),
    "a lost order": (
        [f"DELETE FROM execution WHERE workflow_id = '{DONE}'"],
        "accepted start lost",
    ),
    "an order that timed out": (
        [f"UPDATE execution SET status = 'timed_out' WHERE workflow_id = '{DONE}'"],
        "not finished: timed_out",
    ),
    "an order that is open": (
        [f"UPDATE execution SET status = 'running', closed_at = NULL WHERE workflow_id = '{DONE}'"],
        "not closed",
    ),
    "a missing event": (
        [f"DELETE FROM event WHERE event_id = 5 AND {in_run('event', DONE)}"],
        "event ids not dense",
    ),
    "a missing finish": (
        [
            f"""DELETE FROM event
            WHERE type = 'workflow_execution_completed' AND {in_run("event", DONE)}"""
        ],
        "event ids not dense",
    ),
    "a refused order that ran": (
        [f"UPDATE execution SET workflow_id = 'order-t-2' WHERE workflow_id = '{DONE}'"],
        "refused start ran",
    ),
    "a period charged twice": (
        [add_effect("charge", f"{SUBSCRIBER}.2", 499)],
        "period not charged exactly once",
    ),
    "a period left out": (
        [drop_effect("charge", f"{SUBSCRIBER}.1")],
        "periods not charged in a row",
    ),
    "a subscription that goes on": (
        [
            f"""UPDATE execution SET status = 'running', closed_at = NULL
            WHERE workflow_id = '{SUBSCRIBER}' AND status = 'canceled'"""
        ],
        "not closed",
    ),
    "stock that vanished": (
        ["UPDATE mock_stock SET available = available - 1 WHERE sku = 'sku-03'"],
        "stock not conserved",
    ),
}


@pytest.fixture
async def demo(dsn: str) -> AsyncIterator[Demo]:
    async with demo_of(dsn) as opened:
        yield opened


def log_of(path: Path, *told: dict[str, Any]) -> Path:
    with ClientLog(path, SystemClock()) as client_log:
        for one in told:
            fields = {"call": "start", "request_id": f"r-{one['workflow_id']}", **one}
            operation = fields.pop("operation")
            client_log.write("invoke", **fields)
            if operation != "invoke":
                client_log.write(operation, **fields)
    return path


def order_entry(workflow_id: str, operation: str = "ok") -> dict[str, Any]:
    return {
        "workflow_id": workflow_id,
        "workflow_type": "Order",
        "operation": operation,
        "amount_cents": 1250,
    }


async def play_everything(demo: Demo, path: Path) -> Path:
    """One order delivered, one declined, one subscription over two periods and cancelled."""
    await demo.play(Owner(Order, PURCHASE), DONE)
    declined = dataclasses.replace(PURCHASE, order_id=DECLINED, card="declined-1")
    await demo.play(Owner(Order, declined), DECLINED)
    for period in (1, 2):
        await demo.play(subscriber(period), SUBSCRIBER)
    leaving = subscriber(3)
    leaving.cancel()
    await demo.play(leaving, SUBSCRIBER)
    subscribed = {"workflow_id": SUBSCRIBER, "workflow_type": "subscription", "operation": "ok"}
    return log_of(
        path,
        order_entry(DONE),
        order_entry(DECLINED),
        order_entry("order-t-2", "fail"),
        order_entry("order-t-3", "unknown"),
        subscribed,
        {**subscribed, "call": "cancel"},
    )


class Named(Owner):
    """A run under a workflow id of its own."""

    def __init__(self, workflow_id: str, workflow: object, argument: object) -> None:
        self.workflow_id = workflow_id
        super().__init__(workflow, argument)

    def cold(self) -> Instance:
        info = WorkflowInfo(namespace="default", workflow_id=self.workflow_id, run_id=RUN_ID)
        return Instance(self.definition, info)


def subscriber(period: int) -> Named:
    return Named(SUBSCRIBER, subscription, Plan(5.0, 499, "visa", period=period))


async def test_what_really_happened_is_verified(demo: Demo, tmp_path: Path) -> None:
    log = await play_everything(demo, tmp_path / "log")
    summary = await verify(demo.dsn, log, wait_seconds=0)

    assert summary.problems == {}
    assert summary.ok
    counts = summary.counts
    assert (counts["accepted"], counts["refused"], counts["unknown"]) == (3, 1, 1)
    assert (counts["completed"], counts["compensated"]) == (1, 1)
    assert (counts["effects_charge"], counts["subscription_runs"]) == (3, 3)


async def test_every_spoiled_book_is_found(demo: Demo, tmp_path: Path) -> None:
    log = await play_everything(demo, tmp_path / "log")
    await execute(demo.dsn, *KEEP)
    missed = {}
    for name, (statements, problem) in SPOILED.items():
        await execute(demo.dsn, *statements)
        summary = await verify(demo.dsn, log, wait_seconds=0)
        if problem not in summary.problems:
            missed[name] = summary.problems
        await execute(demo.dsn, *HEAL)

    assert missed == {}
    assert (await verify(demo.dsn, log, wait_seconds=0)).ok


async def test_an_order_still_under_way_is_waited_for_and_then_named(
    demo: Demo, tmp_path: Path
) -> None:
    await demo.play(Owner(Order, PURCHASE), DONE, delivered=False)
    log = log_of(tmp_path / "log", order_entry(DONE))

    summary = await verify(demo.dsn, log, wait_seconds=0.1)

    assert summary.problems == {"not closed": [DONE]}


async def test_only_the_given_ids_are_judged(dsn: str, tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", order_entry("order-1"), order_entry("order-2"))

    assert (await verify(dsn, log, ids={"order-2"}, wait_seconds=0)).problems == {
        "accepted start lost": ["order-2"]
    }


def test_a_log_cut_off_in_a_line_can_be_read_and_an_open_call_is_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", order_entry("order-1", "invoke"))
    with log.open("ab") as file:
        file.write(b'{"at": "2026')

    (only,) = starts(read(log))
    assert (only.workflow_id, only.outcome, only.cancel) == ("order-1", "unknown", None)


def test_a_result_that_cannot_be_read_counts_as_none() -> None:
    assert outcome_of(b"\xc1") == ""
    assert outcome_of(None) == ""


@pytest.mark.parametrize(
    ("names", "charged", "expected"),
    [
        ("reserve charge ship assign", 5, []),
        ("charge reserve ship assign", 5, ["steps not in order, once each"]),
        ("reserve charge ship assign", 6, ["charged another amount"]),
        ("reserve charge ship assign charge", 10, ["not charged exactly once"]),
    ],
)
def test_a_completed_order_has_every_step_once_in_order(
    names: str, charged: int, expected: list[str]
) -> None:
    assert expected == faults_of_completed(names.split(), charged, 5)[: len(expected) or None]


@pytest.mark.parametrize(
    ("names", "money", "expected"),
    [
        ("", (0, 0), []),
        ("reserve unreserve", (0, 0), []),
        ("reserve charge refund unreserve", (5, 5), []),
        ("reserve charge unreserve refund", (5, 5), ["not undone in reverse, once each"]),
        ("reserve charge refund unreserve", (5, 4), ["charged and not given back"]),
        ("reserve unreserve charge refund", (5, 5), ["not undone in reverse, once each"]),
        ("charge refund", (5, 5), ["steps not in order, once each"]),
    ],
)
def test_a_compensated_order_has_every_step_undone_in_reverse(
    names: str, money: tuple[int, int], expected: list[str]
) -> None:
    assert faults_of_compensated(names.split(), *money) == expected
