"""What a client saw of its calls, one JSON object per line: evidence for verification and checker.

A call begins with `invoke` and ends with `ok` (accepted), `fail` (refused: it has not happened and
never will) or `unknown` (no answer in time). An `invoke` without an end is unknown too: the client
went away. Times are the client's own, UTC.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from odin.runtime.clock import Clock

Operation: TypeAlias = Literal["invoke", "ok", "fail", "unknown"]
Call: TypeAlias = Literal["start", "cancel", "describe"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    Attributes:
        at: When, ISO 8601.
        operation: What the line says of the call.
        call: What was called; "describe" asks how a run stands.
        workflow_id: Whom it was about.
        workflow_type: What was started.
        request_id: Ties the lines of one call together.
        run_id: The run that an accepted start led to.
        amount_cents: What the order was to be charged.
        reason: Why it was refused, or is unknown.
        retry_after_ms: When a refused call may come again, if the refusal said so.
        status: How the run stood, as an answer to "describe" says.
    """

    at: str
    operation: Operation
    call: Call
    workflow_id: str
    request_id: str
    workflow_type: str = ""
    run_id: str = ""
    amount_cents: int = 0
    reason: str = ""
    retry_after_ms: int = 0
    status: str = ""


class ClientLog:
    """Appends to a client log; every line is on its way to the disk before the call goes on.

    Attributes:
        path: The file.
        begins_at: Where in it the lines of this instance begin, bytes.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open `path`, made if it is not there; earlier lines stay."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("ab", buffering=0)
        self.begins_at = self._file.seek(0, os.SEEK_END)
        self._clock = clock

    def write(self, operation: Operation, **fields: Any) -> None:  # noqa: ANN401 - the fields of Entry
        """Append one line, stamped with the present time."""
        entry = Entry(at=self._clock.wall().isoformat(), operation=operation, **fields)
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        self._file.close()


def read(path: Path) -> list[Entry]:
    """Return the entries of a log; a last line that was cut off in the middle is left out.

    Raises:
        msgspec.ValidationError: the file holds something else than a client log.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Entry) for line in lines]


@dataclass(frozen=True, slots=True)
class Started:
    """What is known of one start: its outcome is "ok", "fail" or "unknown"."""

    workflow_id: str
    workflow_type: str
    outcome: Operation
    amount_cents: int
    cancel: Operation | None


def starts(entries: Iterable[Entry]) -> list[Started]:
    """Return every start of a log with its outcome, and that of a cancellation if one was asked."""
    begun: dict[str, Entry] = {}
    outcome: dict[str, Operation] = {}
    cancels: dict[str, Operation] = {}
    for entry in entries:
        found: Operation = "unknown" if entry.operation == "invoke" else entry.operation
        if entry.call == "describe":
            continue
        if entry.call == "cancel":
            cancels[entry.workflow_id] = found
        elif entry.operation == "invoke":
            begun.setdefault(entry.workflow_id, entry)
            outcome.setdefault(entry.workflow_id, found)
        else:
            outcome[entry.workflow_id] = found
    return [
        Started(one, entry.workflow_type, outcome[one], entry.amount_cents, cancels.get(one))
        for one, entry in begun.items()
    ]
