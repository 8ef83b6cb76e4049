"""The activities over real mocks: what an attempt does when the service misbehaves."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from odin.exceptions import ApplicationError
from worker.shop import Addresses, Payment, Purchase, Shop

from .demo_fixture import Demo, demo_of
from .mocks_fixture import LEDGER, rows

PAYMENT = Payment("order-1", 1250, "visa")


@pytest.fixture
async def demo(dsn: str) -> AsyncIterator[Demo]:
    async with demo_of(dsn) as opened:
        yield opened


async def charge(demo: Demo, key: str = "wf-1/run/2", payment: Payment = PAYMENT) -> None:
    await demo.attempt("wf-1", key, "charge", payment)


@pytest.mark.parametrize("kind", ["forgetful", "reset"])
async def test_an_attempt_after_a_lost_answer_charges_nothing_more(demo: Demo, kind: str) -> None:
    await demo.payments.behave(kind=kind, for_seconds=60)
    with pytest.raises(ApplicationError) as caught:
        await charge(demo)
    await demo.payments.behave(kind="none")
    await charge(demo)

    assert (caught.value.type, caught.value.non_retryable) == ("Unavailable", False)
    assert await demo.payments.effects() == ["charge"]


async def test_a_declined_card_is_final(demo: Demo) -> None:
    with pytest.raises(ApplicationError) as caught:
        await charge(demo, payment=Payment("order-1", 1250, "declined-1"))

    assert (caught.value.type, caught.value.non_retryable) == ("CARD_DECLINED", True)


async def test_the_same_key_for_something_else_is_final(demo: Demo) -> None:
    await charge(demo)
    with pytest.raises(ApplicationError) as caught:
        await charge(demo, payment=Payment("order-1", 1, "visa"))

    assert (caught.value.type, caught.value.non_retryable) == ("REQUEST_MISMATCH", True)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_service_told_to_fail_may_be_asked_again(demo: Demo, status: int) -> None:
    await demo.payments.behave(kind="failing", status=status, for_seconds=60)
    with pytest.raises(ApplicationError) as caught:
        await charge(demo)

    assert not caught.value.non_retryable


async def test_a_service_that_is_not_there_may_be_asked_again(demo: Demo) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        nowhere = Addresses(*["http://127.0.0.1:9"] * 3)
        lost = Demo(demo.dsn, Shop(session, nowhere), demo.payments)
        with pytest.raises(ApplicationError) as caught:
            await charge(lost)

    assert (caught.value.type, caught.value.non_retryable) == ("Unavailable", False)


async def test_attempts_side_by_side_have_one_effect(demo: Demo) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(charge(demo))

    assert await demo.payments.effects() == ["charge"]


async def test_every_step_and_its_undoing_reach_the_right_service(demo: Demo) -> None:
    purchase = Purchase("order-1", "sku-03", 2, 1250, "visa")
    arguments = {"reserve": purchase, "charge": PAYMENT}
    steps = ("reserve", "charge", "ship", "assign")
    for name in (*steps, "unassign", "cancel_shipment", "refund", "unreserve"):
        await demo.attempt("wf-1", f"key-{name}", name, arguments.get(name, "order-1"))

    recorded = await rows(demo.dsn, LEDGER)
    assert [row["effect"] for row in recorded] == [
        *(*steps, "unassign", "cancel_shipment"),
        *("refund", "unreserve"),
    ]
    assert {row["order_id"] for row in recorded} == {"order-1"}
    told = await rows(demo.dsn, "SELECT workflow_id FROM mock_delivery")
    assert [row["workflow_id"] for row in told] == ["wf-1"]
