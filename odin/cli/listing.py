"""`odin list` and `odin show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odin.cli.connecting import with_client
from odin.cli.output import clean, duration_of, local, shorten, span, write, write_json, write_table
from odin.cli.shared import current
from odin.client import WorkflowExecutionStatus
from odin.runtime.clock import SystemClock

if TYPE_CHECKING:
    from odin._client.listing import ListOptions
    from odin._client.models import FailureInfo, PendingActivityInfo
    from odin.client import Client, WorkflowExecution, WorkflowExecutionDescription

_COLUMNS = ("WORKFLOW ID", "TYPE", "STATUS", "STARTED", "TOOK", "RUN ID")


def list_runs(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    running: Annotated[bool, typer.Option("--running", help="Only open runs.")] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failed, terminated and timed out runs.")
    ] = False,
    status: Annotated[str | None, typer.Option(help="Statuses, with commas.")] = None,
    workflow_type: Annotated[str | None, typer.Option("--type", help="The workflow type.")] = None,
    prefix: Annotated[str | None, typer.Option("--id", help="How the workflow id begins.")] = None,
    since: Annotated[str | None, typer.Option(help="Started in the last 30s, 1h, 2d.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")] = 20,
) -> int:
    r"""List runs, newest first.

    \b
      odin list --failed --since 1h
      odin list --type order --running --json | jq .[].workflow_id
    """
    now = SystemClock().wall()
    which: ListOptions = {
        "status": WorkflowExecutionStatus.RUNNING.value if running else status,
        "failed": True if failed else None,
        "workflow_type": workflow_type,
        "id_prefix": prefix,
        "started_after": now - duration_of(since, "--since") if since else None,
    }

    async def work(client: Client) -> list[WorkflowExecution]:
        return [one async for one in client.list_workflows(limit=limit, **which)]

    found = with_client(work)
    if current().as_json:
        write_json(found)
    else:
        write_table(_COLUMNS, [_line(one) for one in found])
    return 0


def _line(one: WorkflowExecution) -> tuple[str, ...]:
    took = "-"
    if one.closed_at is not None:
        took = span((one.closed_at - one.started_at).total_seconds())
    started = local(one.started_at)
    return (one.workflow_id, one.workflow_type, one.status.value, started, took, one.run_id)


def show(
    workflow_id: Annotated[str, typer.Argument(help="The workflow id.")],
    run_id: Annotated[str | None, typer.Option(help="One run of it; else the newest.")] = None,
) -> int:
    """Show one run: how it stands, what it waits for, and what went wrong last."""

    async def work(client: Client) -> WorkflowExecutionDescription:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).describe()

    found = with_client(work)
    if current().as_json:
        write_json(found)
        return 0
    for name, value in _facts(found):
        write(f"{name:<14}{clean(value)}")
    if found.pending_activities:
        write("")
        columns = ("PENDING", "STATE", "ATTEMPT", "NEXT ATTEMPT", "WORKER", "LAST FAILURE")
        write_table(columns, [_pending(one) for one in found.pending_activities])
    return 0


def _facts(found: WorkflowExecutionDescription) -> list[tuple[str, str]]:
    facts = [
        ("workflow id", found.workflow_id),
        ("run id", found.run_id),
        ("type", found.workflow_type),
        ("status", found.status.value + (" (cancel requested)" if found.cancel_requested else "")),
        ("task queue", found.task_queue),
        ("started", local(found.started_at)),
    ]
    if found.closed_at is not None:
        facts.append(("closed", local(found.closed_at)))
    facts.append(("history", f"{found.history_length} events, {found.history_bytes} bytes"))
    if found.owner is not None:
        owner = found.owner
        facts.append(
            (
                "owner",
                f"{owner.node_id or 'nobody'}, shard {owner.shard_id}, range {owner.range_id}",
            )
        )
    facts += [(f"input {place}", shorten(one, 200)) for place, one in enumerate(found.input, 1)]
    task = found.workflow_task
    if task.state != "none":
        facts.append(
            ("workflow task", f"{task.state}, number {task.number}, attempt {task.attempt}")
        )
    if task.last_failure is not None:
        facts += [
            ("task failed", failure_line(task.last_failure)),
            ("at", task.last_failure.source),
        ]
    facts += [("timer", f"fires {local(one.fires_at)}") for one in found.pending_timers]
    if found.failure is not None:
        facts.append(("failure", failure_line(found.failure)))
    elif found.status is WorkflowExecutionStatus.COMPLETED:
        facts.append(("result", shorten(found.result, 200)))
    if found.new_run_id:
        facts.append(("continued as", found.new_run_id))
    return facts


def _pending(one: PendingActivityInfo) -> tuple[str, ...]:
    of = f"/{one.maximum_attempts}" if one.maximum_attempts else ""
    return (
        f"{one.activity_type} ({one.activity_id})",
        one.state,
        f"{one.attempt}{of}",
        local(one.next_attempt_at),
        one.worker or "-",
        failure_line(one.last_failure) if one.last_failure else "-",
    )


def failure_line(failure: FailureInfo | Any) -> str:  # noqa: ANN401 - also a newer engine's
    """Return a failure and what caused it, on one line."""
    said: list[str] = []
    at: FailureInfo | None = failure
    while at is not None:
        said.append(f"{at.type}: {at.message}" if at.type else at.message)
        at = at.cause
    return " ← ".join(said)
