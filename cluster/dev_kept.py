"""What `odin dev` keeps between two runs, and that only one runs in a folder."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from odin.errors import FailedPreconditionError

from .identity import fingerprint
from .place import ClusterRunsError, Place
from .state import ClusterState, Phase, write_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .state import PartState

SUBFOLDER: Final = "dev"
_LOCK: Final = "cluster.lock"


class DevRunsError(FailedPreconditionError):
    """An `odin dev` runs in this folder already."""

    reason = "DEV_RUNS"


def place_of(folder: Path | None) -> Place:
    """Return where the data is kept: `dev` below the folder of the local cluster."""
    return Place(Place.of(folder).folder / SUBFOLDER)


@contextmanager
def owned(place: Place, *, fresh: bool) -> Iterator[None]:
    """Own the place for the length of the block; with `fresh` empty it first.

    Raises:
        DevRunsError: Another process owns it.
    """
    place.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(place.owned())
        except ClusterRunsError as error:
            raise DevRunsError(
                f"an `odin dev` runs with the data in {place.folder} already: end it with Ctrl-C,"
                " or take another --folder"
            ) from error
        if fresh:
            _empty(place)
        yield


def write_phase(
    place: Place, phase: Phase, began: str, address: str, parts: list[PartState]
) -> None:
    """Write down what runs, for `odin list` and its like to find."""
    state = ClusterState(
        pid=os.getpid(),
        fingerprint=fingerprint(os.getpid()),
        phase=phase,
        started_at=began,
        broker="embedded",
        engines=[address] if address else [],
        parts=parts,
    )
    write_state(place, state)


def _empty(place: Place) -> None:
    for path in place.folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()
    place.prepare()
