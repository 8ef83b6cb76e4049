"""Finds the local cluster that runs for this folder, so that nobody has to type its address.

`odin up` and `odin dev` write down where they listen, below `.odin` of the folder they were started
in. Looked at are ODIN_FOLDER, or `.odin` in the current folder and in those above it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from odin.runtime.parent import ParentWatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER_VARIABLE: Final = "ODIN_FOLDER"
_STATES: Final = ("cluster.json", "dev/cluster.json")


class _State(msgspec.Struct):
    """What is read of a cluster's state file."""

    pid: int
    phase: str
    started_at: str = ""
    engines: list[str] = []


class _Secrets(msgspec.Struct):
    """What is read of a cluster's secrets."""

    amqp_url: str = ""


@dataclass(frozen=True, slots=True)
class Nearby:
    """A local cluster that runs.

    Attributes:
        address: Its engines, as --address takes them.
        file: What says so.
    """

    address: str
    file: Path

    @property
    def amqp_url(self) -> str:
        """Its broker's address with the password; empty if it has none. A secret."""
        file = self.file.with_name("cluster.secrets.json")
        try:
            return msgspec.json.decode(file.read_bytes(), type=_Secrets).amqp_url
        except (OSError, msgspec.MsgspecError):
            return ""


def nearby(start: Path | None = None, environ: Mapping[str, str] = os.environ) -> Nearby | None:
    """Return the local cluster of the nearest folder; of two, the one that was started last."""
    for folder in _folders(start or Path.cwd(), environ):
        found = [one for name in _STATES if (one := _running(folder / name)) is not None]
        if found:
            _, best = max(found, key=lambda one: one[0])
            return best
    return None


def _folders(start: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    if given := environ.get(FOLDER_VARIABLE):
        yield Path(given)
        return
    for folder in (start, *start.parents):
        yield folder / ".odin"


def _running(file: Path) -> tuple[str, Nearby] | None:
    """Return when the cluster was started, and where it is; None if it does not run."""
    try:
        # Where to send calls, and with them a token, is not for other users of the machine to say.
        if file.stat().st_uid not in {0, os.geteuid()}:
            return None
        state = msgspec.json.decode(file.read_bytes(), type=_State)
    except (OSError, msgspec.MsgspecError):
        return None
    if state.phase == "stopped" or not state.engines or ParentWatch(state.pid).is_gone():
        return None
    return state.started_at, Nearby(",".join(state.engines), file)
