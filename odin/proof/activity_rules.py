"""I15: the attempts of an activity, as its closing event lists them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from odin.proof.ruling import Ruling
from odin.proof.story import (
    ACTIVITY,
    ACTIVITY_COMPLETED,
    ANSWERS,
    CLOCK_SLACK_US,
    command_of,
    place,
)

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import EventRow, RunRows

KEPT_MAX: Final = 200
"""Attempts that a closing event lists at most: of more, the newest."""


def claims(rows: RunRows) -> Finding:
    """I15: one accepted claim for each attempt, attempts 1..k without a gap, one after the other.

    A completed activity was completed by its last attempt and by no other, any other activity by
    none.
    """
    ruling = Ruling("I15")
    asked = {command_of(event): event for event in rows.events if event.type == ACTIVITY}
    tokens: dict[str, EventRow] = {}
    for event in rows.events:
        if ANSWERS.get(event.type) != ACTIVITY:
            continue
        ruling.count("activities")
        attempts: list[dict[str, Any]] = list(event.attributes.get("attempts", ()))
        ruling.count("attempts", len(attempts))
        _one_claim_each(ruling, event, attempts, tokens)
        _one_after_the_other(ruling, event, attempts)
        _ended_as_told(ruling, event, attempts)
        policy = asked[command_of(event)].attributes if command_of(event) in asked else {}
        most = policy.get("retry_policy", {}).get("maximum_attempts", 0)
        if most and attempts and attempts[-1]["attempt"] > most:
            ruling.wrong(place(event), f"attempt {attempts[-1]['attempt']} of at most {most}")
    return ruling.finding("every attempt had one claim, and one of them at most was accepted")


def _one_claim_each(
    ruling: Ruling, event: EventRow, attempts: list[dict[str, Any]], tokens: dict[str, EventRow]
) -> None:
    first = 1
    if len(attempts) == KEPT_MAX:
        first = attempts[0]["attempt"]
    for number, attempt in enumerate(attempts, first):
        if attempt["attempt"] != number:
            ruling.wrong(place(event), f"attempt {attempt['attempt']} stands where {number} should")
    for attempt in attempts:
        token = attempt["claim_token"]
        if token in tokens:
            ruling.wrong(place(event), f"one claim token stands for two attempts: {token[:12]}")
        tokens[token] = event


def _one_after_the_other(ruling: Ruling, event: EventRow, attempts: list[dict[str, Any]]) -> None:
    for attempt in attempts:
        if attempt["ended_us"] < attempt["started_us"]:
            ruling.wrong(place(event), f"attempt {attempt['attempt']} ended before it began")
    for earlier, later in pairwise(attempts):
        if later["started_us"] + CLOCK_SLACK_US < earlier["ended_us"]:
            ruling.wrong(
                place(event),
                f"attempt {later['attempt']} began while {earlier['attempt']} was alive",
            )


def _ended_as_told(ruling: Ruling, event: EventRow, attempts: list[dict[str, Any]]) -> None:
    accepted = [one["attempt"] for one in attempts if one["how"] == "completed"]
    if event.type != ACTIVITY_COMPLETED:
        if accepted:
            ruling.wrong(place(event), f"{event.type}, and attempt {accepted[0]} had completed")
    elif not attempts:
        ruling.wrong(place(event), "completed without any attempt")
    elif accepted != [attempts[-1]["attempt"]]:
        ruling.wrong(place(event), f"completed, and the attempts that completed are {accepted}")
