"""`odin history`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from odin.cli.connecting import connected, fetch_json, namespace_query
from odin.cli.history_rows import Row, Rows
from odin.cli.output import clean, is_for_people, shorten, span, write, write_json, write_table
from odin.cli.shared import current
from odin.core.events import CLOSING, TYPE_NAMES
from odin.core.ids import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odin._client.transport import Transport

COLUMNS = ("#", "+Δt", "TYPE", "NAME", "ATTEMPT", "WAIT", "RUN", "RESULT")
_CLOSING = frozenset(TYPE_NAMES[one] for one in CLOSING)
_FOLLOW_SECONDS = 0.4


def history(
    workflow_id: Annotated[str, typer.Argument(help="The workflow id.")],
    *,
    run_id: Annotated[str | None, typer.Option(help="One run of it; else the newest.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all attributes.")] = False,
) -> int:
    """Print the event history of a run; with --json, one event a line."""
    asyncio.run(_print(check_id(workflow_id, "workflow id"), run_id, follow=follow, full=full))
    return 0


async def _print(workflow_id: str, run_id: str | None, *, follow: bool, full: bool) -> None:
    options = current()
    rows = Rows()
    kept: list[tuple[str, ...]] = []
    lines = follow or full or not is_for_people()
    async with connected() as transport:
        if lines and not options.as_json:
            write(_line(COLUMNS))
        async for event in events(transport, workflow_id, run_id, follow=follow):
            if options.as_json:
                write_json(event)
                continue
            cells = _cells(rows.row(event), limit=60)
            if lines:
                write(_line(cells))
            else:
                kept.append(cells)
            if full:
                write_json(event["attributes"])
    if kept:
        write_table(COLUMNS, kept)


async def events(
    transport: Transport, workflow_id: str, run_id: str | None, *, follow: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield events as the API shows them; with `follow` until the run has ended."""
    query = namespace_query()
    after = 0
    while True:
        asked = {**query, "after": str(after), **({} if run_id is None else {"run_id": run_id})}
        page = await fetch_json(transport, f"/v1/executions/{quote(workflow_id)}/history", asked)
        run_id = page["run_id"]
        for event in page["events"]:
            after = event["event_id"]
            yield event
            if event["type"] in _CLOSING:
                return
        if page["next"] is None:
            if not follow:
                return
            await asyncio.sleep(_FOLLOW_SECONDS)


def _cells(row: Row, limit: int) -> tuple[str, ...]:
    return (
        str(row.event_id),
        f"+{span(row.since_start)}",
        row.type,
        clean(row.name),
        row.attempt,
        "" if row.wait is None else span(row.wait),
        "" if row.run is None else span(row.run),
        "" if row.result is None else clean(shorten(row.result, limit)),
    )


def _line(cells: tuple[str, ...]) -> str:
    if not is_for_people():
        return "\t".join(cells)
    widths = (4, 8, 32, 20, 7, 7, 7, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
