"""Payments: an order is charged, and refunded.

    (unknown) ──charge──▶ charged ──refund──▶ refunded
        └──refund──▶ voided

A refund that comes before its charge voids the order: a charge that was under way when the order
was given up, and arrives late, is refused instead of taking money that nobody will give back.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .ruling import Id, Known, OrderRequest, Route, Ruling, refusal

DECLINED_PREFIX = "declined"


class Charge(OrderRequest):
    """Take `amount_cents` from a card. A card whose name begins with "declined" never pays."""

    amount_cents: Annotated[int, Field(gt=0, le=100_000_000)]
    card: Id


class Refund(OrderRequest):
    """Give back whatever was charged for the order."""


def charge(known: Known | None, body: Charge) -> Ruling:
    """Charge the card, unless it declines or the order was given up."""
    if known and known.state in {"refunded", "voided"}:
        return refusal(409, "ORDER_CLOSED", f"the order is {known.state}: it cannot be charged")
    if body.card.startswith(DECLINED_PREFIX):
        return refusal(402, "CARD_DECLINED", "the card was declined; no other try will change that")
    charged_cents = body.amount_cents + (known.amount_cents if known else 0)
    return Ruling(
        answer={"order_id": body.order_id, "charged_cents": body.amount_cents},
        after=Known("charged", amount_cents=charged_cents),
        effect="charge",
        amount_cents=body.amount_cents,
    )


def refund(known: Known | None, body: Refund) -> Ruling:
    """Give everything back; of an order never charged, make sure that it never will be."""
    if known is None or known.state != "charged":
        answer: dict[str, object] = {"order_id": body.order_id, "refunded_cents": 0}
        return Ruling(answer=answer, after=known or Known("voided"))
    return Ruling(
        answer={"order_id": body.order_id, "refunded_cents": known.amount_cents},
        after=Known("refunded", amount_cents=known.amount_cents),
        effect="refund",
        amount_cents=known.amount_cents,
    )


ROUTES = (Route("/charge", Charge, charge), Route("/refund", Refund, refund))
