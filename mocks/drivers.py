"""Drivers: one is assigned to an order, delivers some seconds later, and says so to an engine.

    (unknown) ──assign──▶ assigned ──unassign──▶ unassigned
        └──unassign──▶ unassigned

A driver who is called off after the delivery brings the parcel back. The delivery itself, and the
report of it as the signal `delivered`, are the work of `delivery.py`.
"""

from __future__ import annotations

from hashlib import sha256

from .ruling import Delivery, Id, Known, OrderRequest, Route, Ruling, refusal

DRIVER_COUNT = 50


class Assign(OrderRequest):
    """Send a driver; `workflow_id` names the execution that waits for the signal `delivered`."""

    workflow_id: Id


class Unassign(OrderRequest):
    """Call the driver off."""


def assign(known: Known | None, body: Assign) -> Ruling:
    """Assign a driver, unless the order was given up."""
    if known and known.state == "unassigned":
        return refusal(409, "ORDER_CLOSED", "the order was given up: no driver can be assigned")
    driver = driver_of(body.order_id)
    return Ruling(
        answer={"order_id": body.order_id, "driver": driver},
        after=Known("assigned"),
        effect="assign",
        delivery=Delivery(body.workflow_id, driver),
    )


def unassign(known: Known | None, body: Unassign) -> Ruling:
    """Call the driver off; of an order without one, make sure that none sets out."""
    was_assigned = known is not None and known.state == "assigned"
    return Ruling(
        answer={"order_id": body.order_id, "unassigned": was_assigned},
        after=Known("unassigned"),
        effect="unassign" if was_assigned else None,
        call_off=True,
    )


def driver_of(order_id: str) -> str:
    """Return the driver for an order: always the same one."""
    number = int.from_bytes(sha256(order_id.encode()).digest()[:4], "big") % DRIVER_COUNT
    return f"driver-{number:02d}"


ROUTES = (Route("/assign", Assign, assign), Route("/unassign", Unassign, unassign))
