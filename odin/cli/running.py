"""`odin run`: starts a workflow, and watches it if asked to."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from odin.cli.connecting import with_client
from odin.cli.failing import EXIT_RUN_FAILED
from odin.cli.output import chat, duration_of, is_for_people, write, write_json
from odin.cli.shared import current
from odin.cli.watching import watch
from odin.client import WorkflowFailureError
from odin.errors import InvalidArgumentError

if TYPE_CHECKING:
    from odin._client.start import StartOptions
    from odin.client import Client, WorkflowHandle


def run(  # noqa: PLR0913 - one parameter for each option of the command
    workflow: Annotated[str, typer.Argument(help="The workflow type.")],
    *,
    value: Annotated[
        list[str] | None,
        typer.Option("--input", help="An argument as JSON; repeat it for several."),
    ] = None,
    input_file: Annotated[
        str | None, typer.Option(help="A file with the one argument as JSON; - is stdin.")
    ] = None,
    workflow_id: Annotated[
        str | None, typer.Option("--id", help="The workflow id; one is made if absent.")
    ] = None,
    task_queue: Annotated[str, typer.Option("--queue", help="The task queue.")] = "default",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result.")] = False,
    timeout: Annotated[
        str | None, typer.Option(help="How long it may take (30s, 5m, 1h), retries included.")
    ] = None,
    delay: Annotated[str | None, typer.Option(help="How long its first task waits.")] = None,
    on_conflict: Annotated[
        str, typer.Option(help="If the id runs already: fail, use_existing, terminate_existing.")
    ] = "fail",
    on_reuse: Annotated[
        str,
        typer.Option(
            help="If the id has ended: allow_duplicate, allow_duplicate_failed_only or"
            " reject_duplicate."
        ),
    ] = "allow_duplicate",
    origin: Annotated[str, typer.Option(help="Who asks, for quotas.")] = "",
    request_id: Annotated[
        str | None, typer.Option(help="Repeat a start whose outcome is unknown with the same id.")
    ] = None,
) -> int:
    r"""Start a workflow; with --wait, show its steps and print its result.

    \b
      odin run Order --input '{"order_id": "o-1", "sku": "tea"}' --wait
      odin run nightly --id nightly-2026-05-01 --on-conflict use_existing
      jq .order big.json | odin run Order --input-file - --json
    """
    arguments = parse_arguments(value or [], input_file)
    options: StartOptions = {
        "id": workflow_id or f"{workflow}-{secrets.token_hex(4)}",
        "task_queue": task_queue,
        "execution_timeout": duration_of(timeout, "--timeout") if timeout else None,
        "start_delay": duration_of(delay, "--delay") if delay else None,
        "id_conflict_policy": on_conflict,
        "id_reuse_policy": on_reuse,
        "origin": origin,
        "request_id": request_id,
    }

    async def work(client: Client) -> int:
        handle = await client.start_workflow(workflow, args=arguments, **options)
        if not wait:
            _tell_started(handle)
            return 0
        return await _see_to_the_end(client, handle)

    return with_client(work)


def _tell_started(handle: WorkflowHandle[Any]) -> None:
    if current().as_json:
        write_json({"workflow_id": handle.id, "run_id": handle.run_id})
        return
    write(f"{handle.id}\t{handle.run_id}")
    if is_for_people():
        chat(f"follow it with: odin history {handle.id} --follow")


async def _see_to_the_end(client: Client, handle: WorkflowHandle[Any]) -> int:
    as_json = current().as_json
    if not as_json:
        chat(f"started {handle.id} (run {handle.run_id})")
    try:
        result = await watch(client, handle, is_silent=as_json)
    except WorkflowFailureError as error:
        if not as_json:
            raise
        told = {"workflow_id": handle.id, "run_id": error.run_id, "status": "failed"}
        write_json({**told, "error": str(error)})
        return EXIT_RUN_FAILED
    if as_json:
        told = {"workflow_id": handle.id, "run_id": handle.run_id or "", "status": "completed"}
        write_json({**told, "result": result})
    else:
        write_json(result)
    return 0


def parse_arguments(values: list[str], file: str | None) -> list[Any]:
    """Return the arguments that the options give; InvalidArgumentError if one is not JSON."""
    if file is None:
        return [_json(one, f"--input {place}") for place, one in enumerate(values, 1)]
    if values:
        raise InvalidArgumentError("give --input or --input-file, not both")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--input-file {file!r} cannot be read: {error}") from error
    return [_json(text, "--input-file")]


def _json(text: str, what: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{what} is not JSON: {error}; a text needs quotes inside quotes: '\"tea\"'"
        ) from error
