"""What has been broken on purpose and is to be healed, on record in the cluster's folder.

The record is written before anything is broken, so that whoever is killed in between leaves it to
the next one: the supervisor heals what is due, `odin heal`, `odin down` and the next `odin up` heal
whatever is left.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .place import Place

Kind: TypeAlias = Literal["frozen", "links", "alarm", "once"]
FILE: Final = "faults.json"


class Broken(msgspec.Struct, kw_only=True):
    """One thing that was broken.

    Attributes:
        id: Names it.
        kind: How it is healed: "frozen" processes are continued, "links" healed at the proxy, an
            "alarm" is called off; what happens "once", such as a kill, heals by itself.
        parts: Whom it concerns.
        what: In words.
        until: When it is to be healed at the latest, by CLOCK_BOOTTIME.
        processes: Those that were frozen, as (pid, fingerprint).
        fault_id: The fault's id at the proxy; empty until the proxy has answered.
    """

    id: str
    kind: Kind
    parts: list[str]
    what: str
    until: float
    processes: list[tuple[int, str]] = msgspec.field(default_factory=list)
    fault_id: str = ""


def recorded(place: Place) -> list[Broken]:
    """Return what is on record."""
    with _locked(place):
        return _read(place)


def record(place: Place, broken: Broken) -> None:
    """Put it on record; an entry of the same id is replaced."""
    with _locked(place):
        _write(place, [*(one for one in _read(place) if one.id != broken.id), broken])


def strike(place: Place, broken_id: str) -> None:
    """Take it off the record: it is healed."""
    with _locked(place):
        _write(place, [one for one in _read(place) if one.id != broken_id])


def _path(place: Place) -> Path:
    return place.folder / FILE


def _read(place: Place) -> list[Broken]:
    try:
        return msgspec.json.decode(_path(place).read_bytes(), type=list[Broken])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []


def _write(place: Place, entries: list[Broken]) -> None:
    new = _path(place).with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=1))
    new.replace(_path(place))


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    descriptor = os.open(place.folder / "faults.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
