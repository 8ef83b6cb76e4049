"""The demo's workflows on the replay instance: every way an order or a subscription can go."""

import pytest

from odin.core import commands as c
from odin.core.payload import decode
from tests.core.replay_owner import Owner
from worker.bench import bench_steps
from worker.orders import Order
from worker.shop import ATTEMPT_TIMEOUT, CALL_SECONDS, Purchase
from worker.subscription import Plan, subscription

PURCHASE = Purchase("order-1", "sku-03", 2, 1250, "visa")
DELIVERY = {"order_id": "order-1", "driver": "driver-07", "delivered_at": "2026-01-01T00:00:00"}
STEPS = ("reserve", "charge", "ship", "assign")
UNDO = ("unassign", "cancel_shipment", "refund", "unreserve")


def asked(owner: Owner) -> str:
    """The one activity that the workflow waits for."""
    (command,) = owner.activities.values()
    return command.activity_type


def succeed(owner: Owner) -> str:
    """Let the activity that is waited for succeed; return its name."""
    ((command_id, command),) = owner.activities.items()
    owner.complete(command_id, "driver-07" if command.activity_type == "assign" else None)
    owner.step()
    return command.activity_type


def fulfil(owner: Owner, steps: int) -> None:
    owner.step()
    for name in STEPS[:steps]:
        assert succeed(owner) == name


def compensate(owner: Owner) -> list[str]:
    undone = []
    while owner.closing is None:
        undone.append(succeed(owner))
    return undone


def test_an_order_that_is_delivered_completes() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 4)
    assert not owner.activities
    owner.signal("delivered", DELIVERY)
    owner.step()

    assert owner.result["status"] == "completed"
    assert owner.result["driver"] == "driver-07"
    owner.check_replay()
    owner.check_every_task()


def test_a_delivery_that_is_told_before_the_assignment_returns_is_not_lost() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 3)
    owner.signal("delivered", DELIVERY)
    owner.step()
    assert succeed(owner) == "assign"

    assert owner.result["status"] == "completed"


@pytest.mark.parametrize("steps", range(4))
def test_a_step_that_fails_for_good_undoes_what_was_begun_in_reverse_order(steps: int) -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, steps)
    owner.fail(next(iter(owner.activities)), kind="CARD_DECLINED")
    owner.step()
    undone = compensate(owner)

    assert undone == list(UNDO[3 - steps :])
    assert owner.result["status"] == "compensated"
    assert owner.result["undone"] == undone
    assert owner.result["reason"] == f"{STEPS[steps]}: CARD_DECLINED"
    owner.check_replay()
    owner.check_every_task()


def test_the_timer_of_four_minutes_wins_over_a_delivery_that_never_comes() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 4)
    (timer,) = owner.timers.values()
    assert timer.duration_ms == 240_000
    owner.fire()
    owner.step()

    assert compensate(owner) == list(UNDO)
    assert (owner.result["status"], owner.result["reason"]) == ("compensated", "time limit")
    owner.check_replay()
    owner.check_every_task()


def test_the_timer_gives_up_a_step_that_is_still_being_tried() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 1)
    owner.fire()
    commands = owner.step()

    assert isinstance(commands[0], c.RequestCancelActivity)
    assert compensate(owner) == ["refund", "unreserve"]


def test_a_cancelled_order_is_undone_and_ends_as_cancelled() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 2)
    owner.cancel()
    owner.step()

    assert compensate(owner) == ["cancel_shipment", "refund", "unreserve"]
    assert isinstance(owner.closing, c.CancelWorkflow)


def test_what_cannot_be_undone_fails_the_order_after_the_rest_was_undone() -> None:
    owner = Owner(Order, PURCHASE)
    fulfil(owner, 1)
    owner.fail(next(iter(owner.activities)), kind="CARD_DECLINED")
    owner.step()
    assert asked(owner) == "refund"
    owner.fail(next(iter(owner.activities)), kind="BROKEN")
    owner.step()

    assert compensate(owner) == ["unreserve"]
    assert owner.failure.kind == "activity"


def test_an_order_for_nothing_ends_at_once() -> None:
    owner = Owner(Order, Purchase("order-1", "sku-03", 0, 1250, "visa"))
    owner.step()

    assert owner.result["status"] == "compensated"
    assert not owner.activities


def test_an_attempt_ends_before_its_time_is_up() -> None:
    owner = Owner(Order, PURCHASE)
    owner.step()
    (command,) = owner.activities.values()

    assert command.start_to_close_ms == 10_000
    assert ATTEMPT_TIMEOUT.total_seconds() > CALL_SECONDS


def test_a_subscription_charges_after_its_period_and_goes_on_as_a_new_run() -> None:
    owner = Owner(subscription, Plan(5.0, 499, "visa", period=3))
    owner.step()
    assert not owner.activities
    owner.fire()
    owner.step()
    (charge,) = owner.activities.values()
    assert decode(charge.input[0])["order_id"] == "order-1.3"
    assert succeed(owner) == "charge"

    assert isinstance(owner.closing, c.ContinueAsNew)
    assert decode(owner.closing.input[0])["period"] == 4
    owner.check_replay()
    owner.check_every_task()


def test_a_subscription_cancelled_while_it_charges_gives_the_charge_back() -> None:
    owner = Owner(subscription, Plan(5.0, 499, "visa"))
    owner.step()
    owner.fire()
    owner.step()
    owner.cancel()
    owner.step()

    assert compensate(owner) == ["refund"]
    assert isinstance(owner.closing, c.CancelWorkflow)


def test_a_subscription_cancelled_while_it_sleeps_just_ends() -> None:
    owner = Owner(subscription, Plan(5.0, 499, "visa"))
    owner.step()
    owner.cancel()
    owner.step()

    assert isinstance(owner.closing, c.CancelWorkflow)


def test_what_is_cancelled_before_its_first_task_ends_as_cancelled() -> None:
    owner = Owner(subscription, Plan(5.0, 499, "visa"))
    owner.cancel()
    owner.step()

    assert isinstance(owner.closing, c.CancelWorkflow)
    owner.check_replay()


def test_a_subscription_ends_when_its_card_declines() -> None:
    owner = Owner(subscription, Plan(5.0, 499, "declined", period=4))
    owner.step()
    owner.fire()
    owner.step()
    owner.fail(next(iter(owner.activities)), kind="CARD_DECLINED")
    owner.step()

    assert owner.result == 3


def test_the_benchmark_runs_one_step_after_the_other() -> None:
    owner = Owner(bench_steps, 5, "x" * 200)
    owner.step()
    done = 0
    while owner.closing is None:
        (command_id,) = owner.activities
        owner.complete(command_id, "x" * 200)
        owner.step()
        done += 1

    assert (done, owner.result) == (5, 5)
