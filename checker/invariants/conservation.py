"""I13: money and goods are conserved. And of I11: no effect that no run has asked for.

Money: what was charged for an order less what was given back is its amount if the order completed
(or a subscription's period was paid), and nothing if it was given up. Goods: what is available,
reserved and shipped of a sku is its total, and orders hold exactly what is reserved.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .payloads import argument_of, result_of, whole
from .tally import Tally, ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.proof.findings import Finding
    from odin.proof.rows import EventRow, RunRows

    from .rows import OrphanRow, StockRow


class Conservation:
    """The accumulator of I13; fed with runs and their effects, and with the stock."""

    def __init__(self) -> None:
        self.tally = Tally("I13", "no order is closed, and there is no stock")

    def add_run(self, rows: RunRows) -> None:
        """Judge the money of one run; open ones, and such as end on their way, are left alone."""
        expected = expected_cents(rows)
        if expected is None or rows.execution is None:
            return
        if rows.effects is None:
            self.tally.doubt(rows.run_id, "the effects were not read")
            return
        self.tally.judge(kind="orders")
        paid: dict[str, int] = defaultdict(int)
        for effect in rows.effects:
            if effect.kind == "charge":
                paid[effect.order_id] += effect.amount_cents
            elif effect.kind == "refund":
                paid[effect.order_id] -= effect.amount_cents
        net = sum(paid.values())
        self.tally.counts["cents_expected"] += expected
        self.tally.counts["cents_paid"] += net
        if net != expected:
            self.tally.blame(
                ids((rows.execution.workflow_id, rows.run_id)),
                "payments less refunds are not what the order came to",
            )

    def add_stock(self, stock: Iterable[StockRow]) -> None:
        """Judge the goods."""
        for row in stock:
            self.tally.judge(kind="skus")
            if row.available + row.reserved + row.shipped != row.total:
                self.tally.blame(row.sku, "stock that does not add up")
            if row.held != row.reserved:
                self.tally.blame(row.sku, "reserved goods that no order holds")

    def finding(self) -> Finding:
        """Return what all orders and goods add up to."""
        return self.tally.finding()


def blame_orphans(tally: Tally, orphans: Iterable[OrphanRow]) -> None:
    """Add to I11 what no single run shows: effects under keys of runs that do not exist."""
    for row in orphans:
        tally.judge(kind="orphans")
        tally.blame(row.idempotency_key, "an effect under a key that no run has")


def expected_cents(rows: RunRows) -> int | None:
    """Return what the run's customer has paid in the end; None if its end does not say."""
    if rows.execution is None or not rows.events:
        return None
    amount = _price(rows)
    match rows.execution.workflow_type, rows.execution.status:
        case "Order", "completed":
            told = result_of(rows.events[-1]).get("status")
            return {"completed": amount, "compensated": 0}.get(str(told))
        case "Order", "canceled":
            return 0
        case "subscription", "continued_as_new":
            return amount
        case "subscription", "canceled" | "completed":
            return 0
        case _:
            return None


def _price(rows: RunRows) -> int | None:
    """Return what the customer named as the price, else what the run asked to be charged."""
    told = argument_of(rows.events[0])
    if "amount_cents" not in told:  # the shop has a price of its own for such an order
        told = next(map(argument_of, filter(_is_charge, rows.events)), {})
    return whole(told["amount_cents"]) if "amount_cents" in told else None


def _is_charge(event: EventRow) -> bool:
    return event.type == "activity_task_scheduled" and (
        event.attributes.get("activity_type") == "charge"
    )
