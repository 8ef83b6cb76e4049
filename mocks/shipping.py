"""Shipping: goods are reserved and shipped, a shipment is recalled, a reservation given back.

    (unknown) ──reserve──▶ reserved ──ship──▶ shipped
        │                     │  ▲               │
        │              unreserve └──────┐  cancel-shipment
        │                     ▼         │        ▼
        └──unreserve──▶   released ◀─unreserve─ recalled ◀──cancel-shipment── (unknown), reserved

`recalled` and `released` are final for what they undo: a reservation or a shipment that was under
way when the order was given up, and arrives late, is refused. Stock is conserved: a piece is
available, reserved or shipped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from .ruling import Id, Known, OrderRequest, Route, Ruling, StockMove, refusal


class Reserve(OrderRequest):
    """Put `quantity` pieces of `sku` aside."""

    sku: Id
    quantity: Annotated[int, Field(gt=0, le=1_000)]


class Ship(OrderRequest):
    """Send what is reserved."""


class CancelShipment(OrderRequest):
    """Take a shipment back into the reserved stock."""


class Unreserve(OrderRequest):
    """Give reserved pieces back."""


def reserve(known: Known | None, body: Reserve) -> Ruling:
    """Put goods aside, unless the order was given up or is past this step."""
    if known and known.state != "reserved":
        return refusal(409, "ORDER_CLOSED", f"the order is {known.state}: nothing can be reserved")
    held = body.quantity + (known.quantity if known else 0)
    return Ruling(
        answer={"order_id": body.order_id, "reserved": body.quantity},
        after=Known("reserved", sku=body.sku, quantity=held),
        effect="reserve",
        stock=StockMove(body.sku, available=-body.quantity, reserved=body.quantity, shipped=0),
    )


def ship(known: Known | None, body: Ship) -> Ruling:
    """Send what is reserved."""
    if known is None or known.state != "reserved":
        state = known.state if known else "unknown"
        return refusal(409, "NOT_RESERVED", f"the order is {state}: there is nothing to ship")
    return Ruling(
        answer={"order_id": body.order_id, "shipped": known.quantity},
        after=replace(known, state="shipped"),
        effect="ship",
        stock=StockMove(known.sku, available=0, reserved=-known.quantity, shipped=known.quantity),
    )


def cancel_shipment(known: Known | None, body: CancelShipment) -> Ruling:
    """Recall the shipment; of an order never shipped, make sure that it never will be."""
    if known is None or known.state != "shipped":
        after = replace(known, state="recalled") if known else Known("recalled")
        if known and known.state == "released":
            after = known
        return Ruling(answer={"order_id": body.order_id, "recalled": 0}, after=after)
    return Ruling(
        answer={"order_id": body.order_id, "recalled": known.quantity},
        after=replace(known, state="recalled"),
        effect="cancel_shipment",
        stock=StockMove(known.sku, available=0, reserved=known.quantity, shipped=-known.quantity),
    )


def unreserve(known: Known | None, body: Unreserve) -> Ruling:
    """Give the goods back; of an order that holds none, make sure that it never will."""
    if known and known.state == "shipped":
        return refusal(409, "SHIPPED", "the goods are on their way: cancel the shipment first")
    if known is None or not known.quantity:
        return Ruling(answer={"order_id": body.order_id, "unreserved": 0}, after=Known("released"))
    return Ruling(
        answer={"order_id": body.order_id, "unreserved": known.quantity},
        after=Known("released", sku=known.sku),
        effect="unreserve",
        stock=StockMove(known.sku, available=known.quantity, reserved=-known.quantity, shipped=0),
    )


ROUTES = (
    Route("/reserve", Reserve, reserve),
    Route("/ship", Ship, ship),
    Route("/cancel-shipment", CancelShipment, cancel_shipment),
    Route("/unreserve", Unreserve, unreserve),
)
