"""The order workflow: reserve, charge, ship, assign a driver, wait for the delivery.

When a step fails for good, or four minutes are over, what was begun is undone in reverse order. A
step counts as begun before its activity is asked for: an attempt whose outcome nobody knows may
have had its effect, and the services take "undo" for a step that never happened as "never do it".

    reserve ─▶ charge ─▶ ship ─▶ assign ─▶ delivered ─▶ completed
       └─────────┴─────────┴────────┴──────────┴──▶ unassign ─▶ cancel shipment ─▶ refund ─▶
                                                    unreserve ─▶ compensated
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from odin import workflow
from odin.exceptions import ActivityError, ApplicationError

from .shop import ATTEMPT_TIMEOUT, RETRIES, Payment, Purchase, Shop

Undo: TypeAlias = Callable[[Any, str], Awaitable[None]]


@dataclass(frozen=True)
class Delivery:
    """What the signal `delivered` tells."""

    order_id: str
    driver: str
    delivered_at: str


@dataclass(frozen=True)
class Receipt:
    """How an order ended: `status` is "completed", or "compensated" with what was undone."""

    order_id: str
    status: str
    reason: str = ""
    driver: str = ""
    delivered_at: str = ""
    undone: list[str] = field(default_factory=list)


@workflow.defn
class Order:
    """One order, from the cart to the door or back."""

    def __init__(self) -> None:
        self._delivery: Delivery | None = None
        self._undo: list[tuple[str, Undo]] = []

    @workflow.signal
    def delivered(self, delivery: Delivery) -> None:
        """Take note that the driver has handed the parcel over."""
        self._delivery = delivery

    @workflow.run
    async def run(self, purchase: Purchase) -> Receipt:
        """Fulfil the order, or leave nothing of it behind.

        Raises:
            ActivityError: Something could not be undone; a person must look.
        """
        if wrong := fault_of(purchase):
            return Receipt(purchase.order_id, "compensated", reason=f"invalid: {wrong}")
        try:
            async with asyncio.timeout(purchase.limit_seconds):
                delivery = await self._fulfil(purchase)
            return Receipt(
                purchase.order_id,
                "completed",
                driver=delivery.driver,
                delivered_at=delivery.delivered_at,
            )
        except ActivityError as error:
            reason = reason_of(error)
        except TimeoutError:
            reason = "time limit"
        except asyncio.CancelledError:
            await self._compensate(purchase.order_id)
            raise
        undone = await self._compensate(purchase.order_id)
        workflow.logger.info("order given up", extra={"reason": reason})
        return Receipt(purchase.order_id, "compensated", reason=reason, undone=undone)

    async def _fulfil(self, purchase: Purchase) -> Delivery:
        order_id = purchase.order_id
        self._undo.append(("unreserve", Shop.unreserve))
        await _step(Shop.reserve, purchase)
        self._undo.append(("refund", Shop.refund))
        await _step(Shop.charge, Payment(order_id, purchase.amount_cents, purchase.card))
        self._undo.append(("cancel_shipment", Shop.cancel_shipment))
        await _step(Shop.ship, order_id)
        self._undo.append(("unassign", Shop.unassign))
        await _step(Shop.assign, order_id)
        await workflow.wait_condition(lambda: self._delivery is not None)
        if self._delivery is None:
            raise ApplicationError("the wait for the delivery ended without one")
        return self._delivery

    async def _compensate(self, order_id: str) -> list[str]:
        """Undo what was begun, newest first, to the end; then raise what could not be undone."""
        failure: ActivityError | None = None
        undone: list[str] = []
        while self._undo:
            name, undo = self._undo.pop()
            try:
                await _step(undo, order_id)
                undone.append(name)
            except ActivityError as error:
                failure = failure or error
        if failure:
            raise failure
        return undone


async def _step(step: Callable[[Any, Any], Awaitable[Any]], argument: object) -> None:
    await workflow.execute_activity_method(
        step, argument, start_to_close_timeout=ATTEMPT_TIMEOUT, retry_policy=RETRIES
    )


def fault_of(purchase: Purchase) -> str:
    """Return what is wrong with a purchase, in words; empty if nothing is."""
    if not purchase.order_id or not purchase.sku or not purchase.card:
        return "an order names itself, a sku and a card"
    if purchase.quantity < 1 or purchase.amount_cents < 1:
        return "quantity and amount are at least 1"
    if purchase.limit_seconds <= 0:
        return "the limit is above 0 seconds"
    return ""


def reason_of(error: ActivityError) -> str:
    """Return why a step failed, as a receipt says it."""
    cause = error.cause
    what = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
    return f"{error.activity_type or 'step'}: {what}"
