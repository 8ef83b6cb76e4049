"""I19: the runs of one workflow id that continue one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odin.proof.ruling import Ruling
from odin.proof.story import CONTINUED, STARTED, closing_of, place

if TYPE_CHECKING:
    from odin.proof.findings import Finding
    from odin.proof.rows import Chain, EventRow, RunRows


def successors(chain: Chain) -> Finding:
    """I19: a run that continued as new has one successor, begun in the same transaction.

    A run whose predecessor is gone begins the part of the chain that is kept.
    """
    ruling = Ruling("I19")
    ruling.count("runs", len(chain.runs))
    begun = {run.run_id: first for run in chain.runs if (first := _start(run)) is not None}
    following: dict[str, list[str]] = {}
    for run_id, first in begun.items():
        following.setdefault(first.attributes.get("continued_from_run_id") or "", []).append(run_id)
    known = {run.run_id for run in chain.runs} | {row.run_id for row in chain.starts or ()}
    for run in chain.runs:
        closing = closing_of(run)
        claimants = following.get(run.run_id, [])
        if closing is None and not run.is_whole:
            continue  # a neighbour whose end was not read
        if closing is None or closing.type != CONTINUED:
            for claimant in claimants:
                ruling.wrong(claimant, f"it continues {run.run_id}, which did not continue as new")
            continue
        ruling.count("links")
        _one_successor(ruling, closing, claimants, begun, known)
    _one_family(ruling, chain)
    if chain.starts is None:
        ruling.unclear(chain.workflow_id, "the other runs of the chain were not looked up")
    return ruling.finding("each run that continued as new has exactly one successor")


def _start(run: RunRows) -> EventRow | None:
    return run.events[0] if run.events and run.events[0].type == STARTED else None


def _one_successor(
    ruling: Ruling,
    closing: EventRow,
    claimants: list[str],
    begun: dict[str, EventRow],
    known: set[str],
) -> None:
    named = closing.attributes.get("new_run_id")
    for claimant in claimants:
        if claimant != named:
            ruling.wrong(claimant, f"it continues {closing.run_id}, whose successor is {named}")
    if named not in known:
        ruling.wrong(place(closing), f"its successor {named} does not exist")
    elif named not in begun:
        ruling.unclear(place(closing), f"its successor {named} was not read")
    elif named not in claimants:
        ruling.wrong(str(named), f"it does not say that it continues {closing.run_id}")
    elif begun[named].txid != closing.txid:
        ruling.wrong(str(named), "it did not begin in the transaction that closed the run before")


def _one_family(ruling: Ruling, chain: Chain) -> None:
    """Every run that begins the same chain is one of its links."""
    firsts = {run.execution.first_run_id for run in chain.runs if run.execution is not None}
    if len(firsts) > 1:
        ruling.wrong(chain.workflow_id, f"the runs name {len(firsts)} different first runs")
    rows = [run.execution for run in chain.runs if run.execution is not None]
    unfinished = {row.run_id for row in (*rows, *(chain.starts or ())) if row.status == "running"}
    if len(unfinished) > 1:
        ruling.wrong(max(unfinished), f"{len(unfinished)} runs of the chain are open")
