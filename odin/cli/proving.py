"""`odin prove`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from odin.cli.connecting import with_client
from odin.cli.failing import EXIT_RUN_FAILED, EXIT_UNREACHABLE
from odin.cli.output import clean, local, write, write_json, write_table
from odin.cli.shared import current
from odin.proof.findings import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odin.client import Client
    from odin.proof import Certificate, Finding
    from odin.proof.certificate import ProvenActivity, RunProof

EXIT_CODES: Final = {"valid": 0, "invalid": EXIT_RUN_FAILED, "unknown": EXIT_UNREACHABLE}
"""Unknown shares its code with an engine that cannot be reached: nothing was learned."""
_FINDINGS: Final = ("INVARIANT", "PROMISE", "VERDICT", "JUDGED", "WHAT WAS FOUND")
_TERMS: Final = ("RANGE", "EVENTS", "NODE", "INCARNATION")
_ACTIVITIES: Final = ("ACTIVITY", "ATTEMPTS", "ENDED", "ACCEPTED FROM", "EFFECTS")


def prove(
    workflow_id: Annotated[str, typer.Argument(help="The workflow id.")],
    run_id: Annotated[
        str | None, typer.Option(help="One run of it; else the whole chain of the newest.")
    ] = None,
) -> int:
    r"""Prove from Postgres alone that a workflow went right, and show the evidence.

    \b
      odin prove order-7
      odin prove order-7 --json | jq .verdict

    Exit codes: 0 valid, 1 invalid, 3 unknown: something that is needed was not kept.
    """

    async def work(client: Client) -> Certificate:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).proof()

    proof = with_client(work)
    if current().as_json:
        write_json(proof)
    else:
        _show(proof)
    return EXIT_CODES[proof.verdict]


def _show(proof: Certificate) -> None:
    write(f"workflow id   {clean(proof.workflow_id)}")
    write(f"verdict       {proof.verdict}")
    write(f"read          {local(proof.read_at)}")
    for run in proof.runs:
        _show_run(run)
    write("")
    write_table(_FINDINGS, [_line(finding) for finding in proof.findings])


def _show_run(run: RunProof) -> None:
    write("")
    write(f"run id        {run.run_id}")
    write(f"status        {run.status}, in shard {run.shard_id}: {run.verdict}")
    write(f"rows          {_counted(run.counts)}")
    write("")
    write_table(_FINDINGS, [_line(finding) for finding in run.findings])
    write("")
    write_table(_TERMS, list(_terms(run)))
    if run.activities:
        write("")
        write_table(_ACTIVITIES, [_activity(one, run) for one in run.activities])


def _line(finding: Finding) -> tuple[str, ...]:
    name = NAMES.get(finding.invariant, "")
    words = clean(finding.words)
    return (finding.invariant, name, finding.verdict, _counted(finding.counts) or "-", words)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _terms(run: RunProof) -> Iterable[tuple[str, ...]]:
    """Yield a line for each stretch of events that one term wrote."""
    for range_id, stretch in groupby(run.events, key=lambda event: event.range_id):
        events = list(stretch)
        first, last = events[0], events[-1]
        which = f"{first.event_id} to {last.event_id}"
        yield str(range_id), which, last.node_id or "unknown", last.incarnation or "unknown"


def _activity(one: ProvenActivity, run: RunProof) -> tuple[str, ...]:
    accepted = ", ".join(f"attempt {a.attempt} of {a.worker}" for a in one.accepted)
    effects = [e for e in run.effects if e.idempotency_key == one.idempotency_key]
    return (
        f"{one.activity_type} ({one.activity_id})",
        str(one.attempts),
        one.ended.removeprefix("activity_task_") or "open",
        accepted or "-",
        ", ".join(f"{e.kind} of {e.order_id} at {e.service}" for e in effects) or "-",
    )
