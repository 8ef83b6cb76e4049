"""The chaos runner's own record: which experiment is under way, and what undoes it.

It is written before anything is broken. Processes and links that are broken are on the cluster's
record as well, which heals by time; this one adds what the cluster does not know of, and who runs.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from odin.errors import FailedPreconditionError

from .faults.undo import Undo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "chaos-running.json"
LOCK: Final = "chaos.lock"


class Running(msgspec.Struct, kw_only=True):
    """The experiment that is under way.

    Attributes:
        experiment_id: Names it.
        scenario: What it is.
        seed: Of its choices.
        pid: Its runner.
        fingerprint: Tells the runner from a later process with the same pid.
        started_at: ISO 8601, UTC.
        undo: What heals it, in this order.
    """

    experiment_id: str
    scenario: str
    seed: int
    pid: int
    fingerprint: str
    started_at: str
    undo: list[Undo] = []


class ExperimentRunsError(FailedPreconditionError):
    """Another experiment is under way in this cluster."""

    reason = "EXPERIMENT_RUNS"


def read_running(folder: Path) -> Running | None:
    """Return what is under way, or was when its runner died; None if nothing is."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Running)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write_running(folder: Path, running: Running) -> None:
    """Put an experiment on record; it is on the disk when this returns."""
    new = folder / f"{FILE}.new"
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(running), indent=1))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / FILE)


def forget_running(folder: Path) -> None:
    """Take it off the record: everything is healed."""
    (folder / FILE).unlink(missing_ok=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Be the only runner of this cluster for the length of the block.

    Raises:
        ExperimentRunsError: there is one already.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExperimentRunsError(
                "an experiment is under way here already; `odin chaos halt` ends it"
            ) from None
        yield
    finally:
        os.close(descriptor)
