"""What the services' ledgers say of a run: I10, I11, I12.

The shop's services keep books: one row for each effect, written in the effect's own transaction. A
workflow of another kind, whose activities call something else, has no effects here and breaks
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.proof.rows import idempotency_key
from odin.proof.ruling import Ruling
from odin.proof.story import (
    ACTIVITY,
    ACTIVITY_COMPLETED,
    CLOCK_SLACK_US,
    closing_of,
    command_of,
    place,
)

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import EffectRow, EventRow, RunRows

STEPS: Final = ("reserve", "charge", "ship", "assign", "deliver")
"""The effects of an order, in the order in which they must come."""
UNDOES: Final = {
    "unreserve": "reserve",
    "refund": "charge",
    "cancel_shipment": "ship",
    "unassign": "assign",
}
BOOKED_ACTIVITIES: Final = frozenset(STEPS[:-1])
"""Activities that cannot complete without an effect of their own name."""
BOOKED_WORKFLOWS: Final = frozenset({"Order", "subscription"})
"""Workflows that are known to call the services that keep books."""
UNASKED: Final = frozenset({"deliver"})
"""Effects that no activity asks for: the driver delivers by himself, some time after `assign`."""
NOT_READ: Final = "the ledgers were not read"


def charged_once(rows: RunRows) -> Finding:
    """I10: one effect for each key, of the amount in the history; no more given back than taken."""
    ruling = Ruling("I10")
    if rows.effects is None:
        ruling.unclear(rows.run_id, NOT_READ)
        return ruling.finding("")
    by_key: dict[tuple[str, str], list[EffectRow]] = defaultdict(list)
    for effect in rows.effects:
        ruling.count("effects")
        by_key[effect.service, effect.idempotency_key].append(effect)
    for (service, key), same in by_key.items():
        if len(same) > 1:
            ruling.wrong(key, f"{len(same)} effects at {service} under one key")
    _balances(ruling, rows.effects)
    _amounts(ruling, rows, rows.effects)
    return ruling.finding("every key had its effect once, and the amounts are those asked for")


def _balances(ruling: Ruling, effects: tuple[EffectRow, ...]) -> None:
    sign = {"charge": 1, "refund": -1}
    taken: dict[str, int] = defaultdict(int)
    for effect in effects:
        taken[effect.order_id] += sign.get(effect.kind, 0) * effect.amount_cents
    for order_id, cents in taken.items():
        if cents < 0:
            ruling.wrong(order_id, f"{-cents} cents more were given back than taken")


def _amounts(ruling: Ruling, rows: RunRows, effects: tuple[EffectRow, ...]) -> None:
    wanted = _by_key(rows)
    for effect in effects:
        asked = wanted.get(effect.idempotency_key)
        if effect.kind != "charge" or asked is None:
            continue
        told = next((_plain(one) for one in asked.attributes.get("input", ())), None)
        if not isinstance(told, dict) or "amount_cents" not in told:
            continue  # of another encoding, or of another shape: nothing to compare with
        ruling.count("amounts")
        if told["amount_cents"] != effect.amount_cents:
            ruling.wrong(
                effect.idempotency_key,
                f"{effect.amount_cents} cents were charged, {told['amount_cents']} were asked for",
            )


def recorded(rows: RunRows) -> Finding:
    """I11: every effect was asked for, before it happened, and a completed step has its effect."""
    ruling = Ruling("I11")
    if rows.effects is None:
        ruling.unclear(rows.run_id, NOT_READ)
        return ruling.finding("")
    if rows.execution is None:
        ruling.unclear(rows.run_id, "without the row of the run its keys are not known")
        return ruling.finding("")
    prefix = idempotency_key(rows.execution.workflow_id, rows.run_id, "")
    own = [effect for effect in rows.effects if effect.idempotency_key.startswith(prefix)]
    ruling.count("effects", len(own))
    wanted = _by_key(rows)
    for effect in own:
        asked = wanted.get(effect.idempotency_key)
        if asked is None:
            ruling.wrong(effect.idempotency_key, f"{effect.kind}: no activity has this key")
            continue
        _asked_for(ruling, effect, asked)
    if own or rows.execution.workflow_type in BOOKED_WORKFLOWS:
        _completed(ruling, rows, wanted, {(one.idempotency_key, one.kind): one for one in own})
    return ruling.finding("every effect was asked for, and every completed step had its effect")


def _asked_for(ruling: Ruling, effect: EffectRow, asked: EventRow) -> None:
    known = {*BOOKED_ACTIVITIES, *UNDOES}
    activity_type = asked.attributes["activity_type"]
    if activity_type in known and activity_type != effect.kind:
        ruling.wrong(effect.idempotency_key, f"{activity_type} was asked for, {effect.kind} done")
    asked_us = asked.commit_at_us or asked.recorded_at_us
    if effect.at_us + CLOCK_SLACK_US < asked_us:
        ruling.wrong(effect.idempotency_key, f"{effect.kind} was done before it was asked for")


def _completed(
    ruling: Ruling,
    rows: RunRows,
    wanted: dict[str, EventRow],
    done: dict[tuple[str, str], EffectRow],
) -> None:
    """Hold the completed steps against the ledgers, as far back as these go."""
    key_of = {command_of(asked): key for key, asked in wanted.items()}
    for event in rows.events:
        key = key_of.get(command_of(event))
        if event.type != ACTIVITY_COMPLETED or key is None:
            continue
        step = wanted[key].attributes["activity_type"]
        if step not in BOOKED_ACTIVITIES:
            continue
        ruling.count("completed")
        effect = done.get((key, step))
        ended_us = event.commit_at_us or event.recorded_at_us
        if effect is None and rows.effects_since_us is None:
            ruling.unclear(place(event), "the ledgers are empty")
        elif effect is None and event.recorded_at_us < (rows.effects_since_us or 0):
            ruling.unclear(place(event), f"the ledgers no longer go back to this {step}")
        elif effect is None:
            ruling.wrong(place(event), f"{step} completed, and the ledgers hold no effect of it")
        elif effect.at_us > ended_us + CLOCK_SLACK_US:
            ruling.wrong(place(event), f"{step} completed before it was done")


def in_order(rows: RunRows) -> Finding:
    """I12: reserve < charge < ship < assign < deliver; undone after it was done, if the run failed.

    A run that gave up undoes each step that had an effect, one that succeeded undoes none. A run
    that was ended from outside, or failed while undoing, may have left anything.
    """
    ruling = Ruling("I12")
    if rows.effects is None:
        ruling.unclear(rows.run_id, NOT_READ)
        return ruling.finding("")
    if rows.execution is None:
        ruling.unclear(rows.run_id, "without the row of the run its keys are not known")
        return ruling.finding("")
    prefix = idempotency_key(rows.execution.workflow_id, rows.run_id, "")
    ended = _ended(rows)
    for order_id, effects in _orders(rows.effects, prefix).items():
        ruling.count("orders")
        _steps(ruling, order_id, effects)
        left = _left(ruling, order_id, effects)
        if ended == "given up":
            for kind in sorted(left):
                ruling.wrong(order_id, f"the run gave up, and {kind} was not undone")
        elif ended == "fulfilled":
            for kind in sorted({effect.kind for effect in effects} & UNDOES.keys()):
                ruling.wrong(order_id, f"{kind} happened, and the run succeeded")
    return ruling.finding("the effects are in order, and undone exactly where the run gave up")


def _orders(effects: tuple[EffectRow, ...], prefix: str) -> dict[str, list[EffectRow]]:
    """Return the run's own effects and the unasked ones, by order, in the ledgers' order."""
    orders: dict[str, list[EffectRow]] = defaultdict(list)
    for effect in sorted(effects, key=lambda one: one.seq):
        if effect.kind in UNASKED or effect.idempotency_key.startswith(prefix):
            orders[effect.order_id].append(effect)
    return orders


def _steps(ruling: Ruling, order_id: str, effects: list[EffectRow]) -> None:
    furthest = 0
    for effect in effects:
        if effect.kind not in STEPS:
            continue
        rank = STEPS.index(effect.kind)
        if rank < furthest:
            ruling.wrong(order_id, f"{effect.kind} came after {STEPS[furthest]}")
        furthest = max(furthest, rank)


def _left(ruling: Ruling, order_id: str, effects: list[EffectRow]) -> set[str]:
    """Return the steps that had an effect and were not undone."""
    done: set[str] = set()
    undone: set[str] = set()
    for effect in effects:
        if effect.kind in UNDOES:
            step = UNDOES[effect.kind]
            if step not in done:
                ruling.wrong(order_id, f"{effect.kind} came before any {step}")
            undone.add(step)
        elif effect.kind in undone:
            ruling.wrong(order_id, f"{effect.kind} came after it was undone")
        elif effect.kind not in UNASKED:
            done.add(effect.kind)
    return done - undone


def _ended(rows: RunRows) -> str:
    """Return "fulfilled", "given up", or "" where neither can be said of the run."""
    closing = closing_of(rows)
    status = "" if rows.execution is None else rows.execution.status
    if closing is None or status not in {"completed", "canceled", "continued_as_new"}:
        return ""
    if status != "completed":
        return "given up" if status == "canceled" else "fulfilled"
    told = _plain(closing.attributes.get("result"))
    how = told.get("status") if isinstance(told, dict) else None
    return {"completed": "fulfilled", "compensated": "given up"}.get(str(how), "")


def _by_key(rows: RunRows) -> dict[str, EventRow]:
    """Return the scheduling event of each idempotency key; the newest of one that is used again."""
    if rows.execution is None:
        return {}
    workflow_id = rows.execution.workflow_id
    return {
        idempotency_key(workflow_id, rows.run_id, event.attributes["activity_id"]): event
        for event in rows.events
        if event.type == ACTIVITY
    }


def _plain(payload: Any) -> Any:  # noqa: ANN401 - a user's value of any type
    """Return what a JSON payload holds; None for another encoding, and for what is no payload."""
    match payload:
        case ["json", bytes() as data]:
            try:
                return msgspec.json.decode(data)
            except msgspec.DecodeError:
                return None
        case _:
            return None
