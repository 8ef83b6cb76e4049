"""`odin signal`, `odin cancel`, `odin terminate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from odin.cli.connecting import with_client
from odin.cli.failing import EXIT_USAGE
from odin.cli.output import chat, write_json
from odin.cli.running import parse_arguments
from odin.cli.shared import current

if TYPE_CHECKING:
    from odin.client import Client

Id = Annotated[str, typer.Argument(help="The workflow id.")]
RunId = Annotated[str | None, typer.Option(help="Only if this is the open run.")]
Reason = Annotated[str, typer.Option(help="Why; it stands in the history.")]
RequestId = Annotated[
    str | None, typer.Option(help="Repeat a call whose outcome is unknown with the same id.")
]


def signal(
    workflow_id: Id,
    name: Annotated[str, typer.Argument(help="The signal's name.")],
    value: Annotated[
        list[str] | None,
        typer.Option("--input", help="An argument as JSON; repeat it for several."),
    ] = None,
    run_id: RunId = None,
    request_id: RequestId = None,
) -> int:
    """Send a signal to an open run: odin signal order-7 approve --input '"ann"'."""
    arguments = parse_arguments(value or [], None)

    async def work(client: Client) -> None:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        await handle.signal(name, args=arguments, request_id=request_id)

    with_client(work)
    return _done("signaled", workflow_id)


def cancel(
    workflow_id: Id, reason: Reason = "", run_id: RunId = None, request_id: RequestId = None
) -> int:
    """Ask an open run to stop; its code decides how."""

    async def work(client: Client) -> None:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        await handle.cancel(reason=reason, request_id=request_id)

    with_client(work)
    return _done("cancel requested", workflow_id)


def terminate(
    workflow_id: Id,
    *,
    reason: Reason = "",
    run_id: RunId = None,
    request_id: RequestId = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """End an open run at once: none of its code runs, nothing is cleaned up."""
    if not yes and not _is_sure(workflow_id):
        return EXIT_USAGE

    async def work(client: Client) -> None:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        await handle.terminate(reason, request_id=request_id)

    with_client(work)
    return _done("terminated", workflow_id)


def _is_sure(workflow_id: str) -> bool:
    if not sys.stdin.isatty():
        chat("error: nobody can be asked here\n  next: say --yes if you are sure")
        return False
    chat(f"{workflow_id} will end at once; none of its code runs, nothing is cleaned up.")
    if typer.confirm("Terminate it?", err=True):
        return True
    chat("nothing was done")
    return False


def _done(what: str, workflow_id: str) -> int:
    if current().as_json:
        write_json({"workflow_id": workflow_id, "done": what})
    else:
        chat(f"{what}: {workflow_id}")
    return 0
