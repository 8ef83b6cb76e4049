"""A subscription: sleeps for a period, charges, and continues as new with the next period.

It has no end of its own; cancelling it ends it. A charge that was under way then is given back: a
customer who leaves does not pay for a period that nobody can vouch for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from odin import workflow
from odin.exceptions import ActivityError

from .shop import ATTEMPT_TIMEOUT, RETRIES, Payment, Shop


@dataclass(frozen=True)
class Plan:
    """What a subscriber pays; `period` counts the periods from 1."""

    period_seconds: float
    amount_cents: int
    card: str
    period: int = 1


@workflow.defn
async def subscription(plan: Plan) -> int:
    """Wait for one period, charge for it, and go on as a new run.

    Returns:
        How many periods were paid, once a charge fails for good.
    """
    period_id = f"{workflow.info().workflow_id}.{plan.period}"
    await workflow.sleep(plan.period_seconds)
    try:
        await workflow.execute_activity_method(
            Shop.charge,
            Payment(period_id, plan.amount_cents, plan.card),
            start_to_close_timeout=ATTEMPT_TIMEOUT,
            retry_policy=RETRIES,
        )
    except ActivityError:
        return plan.period - 1
    except asyncio.CancelledError:
        await workflow.execute_activity_method(
            Shop.refund, period_id, start_to_close_timeout=ATTEMPT_TIMEOUT, retry_policy=RETRIES
        )
        raise
    return workflow.continue_as_new(replace(plan, period=plan.period + 1))
