"""Shows a run's steps while it runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from odin._client.transport import Transport
from odin.cli.histories import events
from odin.cli.history_rows import Row, Rows
from odin.cli.output import chat, clean, shorten, span
from odin.cli.shared import current
from odin.errors import OdinError

if TYPE_CHECKING:
    from collections.abc import Callable

    from odin.client import Client, WorkflowHandle

_ENDED = {"completed": "✔", "fired": "✔", "failed": "✘", "timed_out": "✘", "canceled": "-"}
_STEPS_SHOWN_MAX = 30
_REFRESH_PER_SECOND = 8
_LOOK_SECONDS = 2.0


class Steps:
    """The steps of a run so far: what was asked for, and how it ended."""

    def __init__(self) -> None:
        self._rows = Rows()
        self._open: dict[int, Row] = {}
        self.ended: list[str] = []

    @property
    def open(self) -> list[Row]:
        """What was asked for and has not ended."""
        return list(self._open.values())

    def add(self, event: dict[str, Any]) -> str | None:
        """Take an event; return the line of the step that it ends or the message that it brings."""
        row = self._rows.row(event)
        command_id = event["attributes"].get("command_id")
        kind, _, how = row.type.removeprefix("activity_task_").rpartition("_")
        how = "timed_out" if row.type.endswith("timed_out") else how
        line: str | None = None
        if row.type in {"activity_task_scheduled", "timer_started"}:
            self._open[command_id] = row
        elif command_id is not None and how in _ENDED:
            self._open.pop(command_id, None)
            line = f"{_ENDED[how]} {_step(row, kind or 'activity')}"
        elif row.type in {"workflow_execution_signaled", "workflow_execution_cancel_requested"}:
            line = f"→ {row.type.removeprefix('workflow_execution_')} {clean(row.name)}".rstrip()
        if line is not None:
            self.ended.append(f"+{span(row.since_start)} {line}")
            return self.ended[-1]
        return None


def _step(row: Row, kind: str) -> str:
    name = clean(row.name) or kind
    parts = [f"sleep {name}" if row.type.startswith("timer") else name]
    if row.attempt not in {"", "1"}:
        parts.append(f"(attempt {row.attempt})")
    if row.run is not None:
        parts.append(span(row.run))
    if row.result is not None:
        parts.append(clean(shorten(row.result, 50)))
    return " ".join(parts)


async def watch(client: Client, handle: WorkflowHandle[Any], *, is_silent: bool) -> Any:  # noqa: ANN401 - any JSON
    """Return the run's result; until then show its steps on stderr.

    Raises:
        WorkflowFailureError: It ended without a result.
    """
    if is_silent:
        return await handle.result()
    transport = Transport(client.addresses, current().api_key)
    try:
        if sys.stderr.isatty():
            return await _watch_live(transport, handle)
        return await _watch_steps(transport, handle, lambda _, line: chat(line) if line else None)
    finally:
        await transport.close()


async def _watch_steps(
    transport: Transport, handle: WorkflowHandle[Any], tell: Callable[[Steps, str | None], None]
) -> Any:  # noqa: ANN401 - any JSON
    steps = Steps()

    async def follow() -> None:
        async for event in events(transport, handle.id, handle.run_id, follow=True):
            tell(steps, steps.add(event))

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(), name="follow the history")
        failing = group.create_task(_tell_failures(handle), name="watch for failing tasks")
        await handle.wait()
        failing.cancel()
        try:  # the last steps are worth a moment
            await asyncio.wait_for(asyncio.shield(following), 2)
        except TimeoutError:
            following.cancel()
    return await handle.result()


async def _tell_failures(handle: WorkflowHandle[Any]) -> None:
    """Say when the workflow task fails: it is retried for ever, and history shows nothing."""
    told = 0
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            task = (await handle.describe()).workflow_task
        except OdinError:
            continue  # the engine may be on its way out; the wait says so if it stays away
        failure = task.last_failure
        if failure is not None and task.failures > told:
            told = task.failures
            where = f" at {failure.source}" if failure.source else ""
            chat(
                f"the workflow task fails (attempt {task.attempt}){where}: {clean(failure.message)}"
            )
            chat(f"it is retried until the code fits; to give up: odin terminate {handle.id}")


async def _watch_live(transport: Transport, handle: WorkflowHandle[Any]) -> Any:  # noqa: ANN401 - any JSON
    from rich.console import Console, Group  # noqa: PLC0415 - slow to import, and only for terminals
    from rich.live import Live  # noqa: PLC0415 - as above
    from rich.spinner import Spinner  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=_REFRESH_PER_SECOND, transient=False) as live:

        def tell(steps: Steps, _: str | None) -> None:
            done = [Text(line) for line in steps.ended[-_STEPS_SHOWN_MAX:]]
            going = [Spinner("dots", Text(clean(row.name) or row.type)) for row in steps.open]
            live.update(Group(*done, *going[:_STEPS_SHOWN_MAX]))

        return await _watch_steps(transport, handle, tell)
